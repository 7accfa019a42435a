"""Training files through OpenAI's client."""

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.api.keyed import Keyed
from tests.api.openai_face.conftest import client_of
from tests.api.openai_face.given import chats, lines, message, preferences


def upload(face: OpenAI, content: bytes, name: str = "berths.jsonl", purpose: Any = "fine-tune") -> Any:
    return face.files.create(file=(name, content), purpose=purpose)


def test_a_file_is_uploaded_shown_downloaded_and_deleted(face: OpenAI) -> None:
    content = b"\n" + chats().replace(b"\n", b"\r\n")
    file = upload(face, content)
    assert (file.filename, file.bytes, file.purpose) == ("berths.jsonl", len(content), "fine-tune")
    assert (file.object, file.status) == ("file", "processed")
    assert face.files.retrieve(file.id) == file
    assert face.files.content(file.id).content == content
    assert face.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        face.files.retrieve(file.id)


def test_files_are_listed_in_both_orders_page_by_page(face: OpenAI) -> None:
    ids = [upload(face, chats(count)).id for count in (1, 2, 3)]
    assert [file.id for file in face.files.list(limit=1)] == ids[::-1]
    assert [file.id for file in face.files.list(limit=2, order="asc")] == ids
    assert face.files.list(purpose="batch").data == []
    with pytest.raises(openai.BadRequestError) as refusal:
        face.files.list(after="file-nothing")
    assert refusal.value.param == "after"


def test_a_line_that_cannot_be_used_is_named(face: OpenAI) -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    bad = chats(2) + lines({"messages": [image, message("assistant", "A boat.")]})
    with pytest.raises(openai.BadRequestError) as refusal:
        upload(face, bad)
    assert "line 3: messages[0].content[0] is an image" in refusal.value.message
    assert (refusal.value.type, refusal.value.code) == ("invalid_request_error", "invalid_value")


def test_another_purpose_is_refused(face: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        upload(face, chats(), purpose="assistants")
    assert refusal.value.param == "purpose"


def test_a_file_holds_one_format(face: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        upload(face, chats(1) + preferences(1))


def test_a_file_is_a_data_set(face: OpenAI, keyed: Keyed) -> None:
    file = upload(face, preferences())
    with keyed.client() as client:
        document = client.get(f"/datasets/{file.id.removeprefix('file-')}").json()
    assert (document["kind"], document["name"]) == ("dpo", "berths.jsonl")
    assert document["splits"]["train"]["examples"] == 12


def test_files_of_another_project_are_unknown(face: OpenAI, keyed: Keyed) -> None:
    file = upload(face, chats())
    with client_of(keyed, keyed.project("other")) as other:
        assert other.files.list().data == []
        for call in (other.files.retrieve, other.files.delete, other.files.content):
            with pytest.raises(openai.NotFoundError):
                call(file.id)
        with pytest.raises(openai.BadRequestError):
            other.fine_tuning.jobs.create(model="gemma", training_file=file.id)


def test_a_wrong_key_is_refused_in_openais_shape(keyed: Keyed) -> None:
    with OpenAI(api_key="rgt_wrong", base_url=f"{keyed.url}/v1", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as refusal:
            stranger.models.list()
        assert refusal.value.code == "invalid_api_key"


def test_an_unknown_address_is_refused_in_openais_shape(face: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        face.chat.completions.create(model="gemma", messages=[{"role": "user", "content": "Hello"}])
    assert refusal.value.type == "invalid_request_error"
