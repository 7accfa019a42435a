"""POST /jobs/validate?preview=N: the first training records token by token."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.schemas.jobs import MOST_TOKENS
from tests.service import build_tiny_gemma


@pytest.fixture
def body(config: dict[str, Any], roots: Path) -> dict[str, Any]:
    folder = build_tiny_gemma(roots / "models" / "tiny")
    return {"task": "finetune", "config": config | {"model_name_or_path": str(folder)}}


def test_the_preview_shows_what_is_masked_and_what_is_learned(
    client: httpx.Client, body: dict[str, Any]
) -> None:
    answer = client.post("/jobs/validate", params={"preview": 2}, json=body)
    assert answer.status_code == 200, answer.text
    preview = answer.json()["preview"]
    assert (preview["split"], preview["template"], len(preview["examples"])) == ("train", None, 2)
    example = preview["examples"][0]
    assert example["location"] == "train.json line 1"
    tokens = example["tokens"]
    assert "".join(token["text"] for token in tokens if token["learned"]) == "answer 0<eos>"
    assert "".join(token["text"] for token in tokens if not token["learned"]) == "<bos>question 0"
    assert (example["cut"], example["left_out"]) == (False, None)


def test_without_the_parameter_there_is_no_preview(client: httpx.Client, body: dict[str, Any]) -> None:
    assert client.post("/jobs/validate", json=body).json()["preview"] is None
    assert client.post("/jobs/validate", params={"preview": 11}, json=body).status_code == 422


def test_a_record_that_the_chat_template_refuses_is_a_problem(
    client: httpx.Client, body: dict[str, Any], roots: Path
) -> None:
    template = "{{ raise_exception('system text is missing') }}"
    (roots / "models" / "tiny" / "chat_template.jinja").write_text(template)
    answer = client.post("/jobs/validate", params={"preview": 1}, json=body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["loc"][:2] == ["body", "config"]
    assert "train.json line 1: the chat template chat_template.jinja refuses it" in error["msg"]
    assert "system text is missing" in error["msg"]


def test_a_template_that_wants_the_whole_machine_gets_no_preview(
    client: httpx.Client, body: dict[str, Any], roots: Path
) -> None:
    (roots / "models" / "tiny" / "chat_template.jinja").write_text("{{ 'x' * 100000000000 }}")
    answer = client.post("/jobs/validate", params={"preview": 1}, json=body)
    assert answer.status_code == 422
    assert json.dumps(answer.json()).count("refuses it") >= 1


def test_of_a_record_of_very_many_tokens_the_beginning_and_the_end_are_shown(
    client: httpx.Client, body: dict[str, Any], roots: Path
) -> None:
    record = {"src": "a b c d e " * 20_000, "tgt": "the answer"}
    (roots / "data" / "sft" / "train.json").write_text(json.dumps(record) + "\n")
    body["config"] |= {"max_length": 10**6, "src_length": 10**6}
    answer = client.post("/jobs/validate", params={"preview": 1}, json=body)
    (example,) = answer.json()["preview"]["examples"]
    assert len(example["tokens"]) == MOST_TOKENS < example["length"]
    assert "".join(token["text"] for token in example["tokens"] if token["learned"]) == "the answer<eos>"
    assert example["tokens"][0]["text"] == "<bos>"


def test_preference_data_tells_the_response_of_every_token(
    client: httpx.Client, body: dict[str, Any], roots: Path
) -> None:
    record = {"src": "question", "response": ["an answer"], "sort": [0]}
    (roots / "data" / "judged.jsonl").write_text(2 * (json.dumps(record) + "\n"))
    config = {
        "model_name_or_path": body["config"]["model_name_or_path"],
        "train_dataset_path": "judged.jsonl",
        "output_dir": "out",
        "do_train": True,
    }
    answer = client.post("/jobs/validate", params={"preview": 1}, json={"task": "kto", "config": config})
    assert answer.status_code == 200, answer.text
    (example,) = answer.json()["preview"]["examples"]
    assert {token["response"] for token in example["tokens"]} == {None, "undesirable"}
    assert example["location"] == "judged.jsonl line 1"


def test_quantize_shows_the_records_of_quant_json(
    client: httpx.Client, body: dict[str, Any], roots: Path
) -> None:
    (roots / "data" / "sft" / "quant.json").write_text(json.dumps({"src": "when", "tgt": "now"}) + "\n")
    paths = ("model_name_or_path", "dataset_name_or_path", "output_dir")
    config = {name: body["config"][name] for name in paths} | {"do_gptq": True}
    answer = client.post("/jobs/validate", params={"preview": 3}, json={"task": "quantize", "config": config})
    assert answer.status_code == 200, answer.text
    preview = answer.json()["preview"]
    (example,) = preview["examples"]
    assert (preview["split"], example["location"]) == ("quant", "quant.json line 1")
    assert "".join(token["text"] for token in example["tokens"]) == "<bos>whennow"
    assert not any(token["learned"] for token in example["tokens"])


def test_a_task_without_records_says_that_there_is_no_preview(
    client: httpx.Client, body: dict[str, Any]
) -> None:
    config = {"model_name_or_path": body["config"]["model_name_or_path"], "output_dir": "out"}
    answer = client.post("/jobs/validate", params={"preview": 1}, json={"task": "export", "config": config})
    assert answer.json()["preview"] is None
    (warning,) = answer.json()["warnings"]
    assert warning["msg"] == "there is no preview, because this task reads no records"


def test_what_another_job_will_make_is_previewed_with_the_tokenizer_that_it_is_made_with(
    client: httpx.Client, body: dict[str, Any]
) -> None:
    used = client.post("/jobs", json=body).json()["id"]
    config = body["config"] | {"model_name_or_path": f"job:{used}"}
    answer = client.post("/jobs/validate", params={"preview": 1}, json=body | {"config": config})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["preview"]["examples"]) == 1
