"""Checkpoints and results: listed, read in ranges, and unpacked from archives."""

import contextlib
import hashlib
import http.client
import io
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from store.database import Database
from store.settings import Settings
from store.tombstones import sweep
from tests.api.parts import Job

CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a trainer would leave: a big file, an empty one, a name with a space, a subfolder."""
    folder = tmp_path / "checkpoint"
    (folder / "sub").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(CONTENT)
    (folder / "empty").write_bytes(b"")
    (folder / "sub" / "a b%.json").write_text("{}")
    return folder


@pytest.fixture
def trained(job: Job, folder: Path) -> Job:
    """A job with two checkpoints and a result."""
    job.start()
    job.publish("checkpoint-2", folder, step=2, metrics={"eval_loss": 2.5})
    job.publish("checkpoint-4", folder, step=4, metrics={"eval_loss": 2.0}, best=True)
    job.publish("result", folder, metrics={"train_loss": 3.0})
    job.finish()
    return job


def model_url(job: Job) -> str:
    return f"{job.path}/checkpoints/checkpoint-2/files/model.safetensors"


def get_as_it_is(client: httpx.Client, path: str) -> tuple[int, str | None]:
    """Status and content type of a path that httpx would have tidied up."""
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type")


def test_checkpoints_are_listed_by_step_without_the_result(client: httpx.Client, trained: Job) -> None:
    page = client.get(f"{trained.path}/checkpoints").json()
    assert [item["name"] for item in page["items"]] == ["checkpoint-2", "checkpoint-4"]
    assert [item["best"] for item in page["items"]] == [False, True]
    assert page["items"][0]["metrics"] == {"eval_loss": 2.5}
    assert page["next_cursor"] is None


def test_pages_of_checkpoints(client: httpx.Client, trained: Job) -> None:
    first = client.get(f"{trained.path}/checkpoints?limit=1").json()
    second = client.get(f"{trained.path}/checkpoints", params={"cursor": first["next_cursor"]}).json()
    assert [item["name"] for item in first["items"] + second["items"]] == ["checkpoint-2", "checkpoint-4"]
    assert client.get(f"{trained.path}/checkpoints?cursor=other").status_code == 422


def test_every_listed_file_has_the_listed_bytes(client: httpx.Client, trained: Job) -> None:
    for path in ("checkpoints/checkpoint-4", "result"):
        shown = client.get(f"{trained.path}/{path}").json()
        assert [file["path"] for file in shown["files"]] == ["empty", "model.safetensors", "sub/a b%.json"]
        assert shown["bytes"] == len(CONTENT) + 2
        for file in shown["files"]:
            answer = client.get(file["url"])
            assert answer.status_code == 200
            assert len(answer.content) == file["bytes"] == int(answer.headers["content-length"])
            assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]


def test_a_result_that_is_not_there_yet_is_a_404_that_says_so(client: httpx.Client, job: Job) -> None:
    answer = client.get(f"{job.path}/result")
    assert answer.status_code == 404
    assert "queued and has no result" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["checkpoint-3", "result", "..", "%2e%2e", "checkpoint-2%2f..", "%00"])
def test_an_unknown_checkpoint_is_a_404(client: httpx.Client, trained: Job, name: str) -> None:
    for below in ("", "/archive", "/files/model.safetensors"):
        status, content_type = get_as_it_is(client, f"{trained.path}/checkpoints/{name}{below}")
        assert (status, content_type) == (404, "application/problem+json")


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-99", 0, 100),
        ("bytes=100-", 100, len(CONTENT)),
        ("bytes=-7", len(CONTENT) - 7, len(CONTENT)),
        (f"bytes={len(CONTENT) - 1}-{len(CONTENT) + 5}", len(CONTENT) - 1, len(CONTENT)),
        ("bytes=-99999999", 0, len(CONTENT)),
        ("bytes=0-", 0, len(CONTENT)),
    ],
)
def test_a_range_is_exactly_those_bytes(
    client: httpx.Client, trained: Job, asked: str, start: int, stop: int
) -> None:
    answer = client.get(model_url(trained), headers={"range": asked})
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(CONTENT)}"
    assert answer.content == CONTENT[start:stop]


@pytest.mark.parametrize("asked", ["lines=1-2", "bytes=5-2", "bytes=a-b", "bytes=0-1,5-6", "bytes=-"])
def test_another_kind_of_range_gives_the_whole_file(client: httpx.Client, trained: Job, asked: str) -> None:
    answer = client.get(model_url(trained), headers={"range": asked})
    assert answer.status_code == 200
    assert answer.content == CONTENT


@pytest.mark.parametrize("asked", [f"bytes={len(CONTENT)}-", "bytes=-0", "bytes=999999999999999999-"])
def test_a_range_that_the_file_does_not_have_is_a_416(client: httpx.Client, trained: Job, asked: str) -> None:
    answer = client.get(model_url(trained), headers={"range": asked})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_download_can_be_taken_up_again_only_for_the_same_bytes(client: httpx.Client, trained: Job) -> None:
    etag = client.head(model_url(trained)).headers["etag"]
    same = client.get(model_url(trained), headers={"range": "bytes=10-19", "if-range": etag})
    assert (same.status_code, same.content) == (206, CONTENT[10:20])
    other = client.get(model_url(trained), headers={"range": "bytes=10-19", "if-range": '"other"'})
    assert (other.status_code, len(other.content)) == (200, len(CONTENT))


def test_bytes_that_the_client_has_are_not_sent_again(client: httpx.Client, trained: Job) -> None:
    for url in (model_url(trained), f"{trained.path}/result/archive"):
        etag = client.head(url).headers["etag"]
        answer = client.get(url, headers={"if-none-match": f'"x", {etag}'})
        assert (answer.status_code, answer.content) == (304, b"")
        assert client.get(url, headers={"if-none-match": '"x"'}).status_code == 200


def test_head_tells_the_size_and_sends_nothing(client: httpx.Client, trained: Job) -> None:
    answer = client.head(model_url(trained))
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''model.safetensors"


@pytest.mark.parametrize(
    "path",
    [
        "..%2f..%2fresult%2fmodel.safetensors",
        "%2e%2e/%2e%2e/result/model.safetensors",
        "sub/../model.safetensors",
        "sub/%2e%2e/model.safetensors",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "model.safetensors%00",
        ".manifest.json",
        "sub",
        "",
    ],
)
def test_a_path_cannot_leave_the_checkpoint(client: httpx.Client, trained: Job, path: str) -> None:
    status, content_type = get_as_it_is(client, f"{trained.path}/checkpoints/checkpoint-2/files/{path}")
    assert (status, content_type) == (404, "application/problem+json")


@pytest.mark.parametrize("path", ["checkpoints/checkpoint-4", "result"])
def test_an_archive_unpacks_to_the_published_folder(
    client: httpx.Client, trained: Job, folder: Path, tmp_path: Path, path: str
) -> None:
    answer = client.get(f"{trained.path}/{path}/archive")
    assert answer.headers["content-type"] == "application/x-tar"
    assert answer.headers["content-length"] == str(len(answer.content))
    with tarfile.open(fileobj=io.BytesIO(answer.content), mode="r:") as archive:
        archive.extractall(tmp_path / "out", filter="data")
    unpacked = {
        file.relative_to(tmp_path / "out" / path.rpartition("/")[2]): file.read_bytes()
        for file in (tmp_path / "out").rglob("*")
        if file.is_file()
    }
    assert unpacked == {
        file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()
    }
    assert client.get(f"{trained.path}/{path}/archive").content == answer.content


@pytest.mark.parametrize("damage", ["gone", "cut", "a link"])
def test_weights_that_are_not_there_as_published_are_a_clear_503(
    client: httpx.Client, trained: Job, settings: Settings, damage: str
) -> None:
    (path,) = Path(urlsplit(settings.artifacts_url).path).rglob("checkpoint-2/model.safetensors")
    if damage == "cut":
        content = path.read_bytes()[:100]
        path.unlink()  # it may be a link to the trainer's own
        path.write_bytes(content)
    else:
        path.unlink()
    if damage == "a link":
        path.symlink_to("/etc/passwd")
    for url in (model_url(trained), f"{trained.path}/checkpoints/checkpoint-2/archive"):
        answer = client.get(url)
        assert answer.status_code == 503
        assert answer.json()["type"] == "urn:regatta:problem:unavailable"
        assert "artifacts" in answer.json()["detail"]
        assert answer.json()["incident"] in answer.json()["detail"]
    assert client.get(f"{trained.path}/result/archive").status_code == 200


def test_artifacts_that_cannot_be_removed_with_their_job_are_removed_later(
    client: httpx.Client, trained: Job, settings: Settings, database: Database
) -> None:
    temporary = Path(urlsplit(settings.artifacts_url).path) / ".tmp"
    temporary.rmdir()
    temporary.touch()  # where artifacts are moved before they are removed
    assert client.delete(trained.path).status_code == 204
    assert client.get(trained.path).status_code == 404
    assert trained.artifacts.list(f"jobs/{trained.id}")
    temporary.unlink()
    assert sweep(database, trained.artifacts) == 1
    assert trained.artifacts.list(f"jobs/{trained.id}") == []
    assert sweep(database, trained.artifacts) == 0
