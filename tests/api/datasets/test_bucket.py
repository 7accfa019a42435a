"""Data sets when the artifacts are a bucket of S3."""

from pathlib import Path

import httpx

from store.artifacts import artifacts_for
from store.database import Database
from store.datasets import fetch_dataset, find_dataset
from store.settings import Settings
from tests.api.datasets.conftest import sft_lines, stored_files
from tests.api.parts import serving
from tests.s3 import S3Server
from tests.service import build_tiny_gemma


def test_a_data_set_lives_in_a_bucket(settings: Settings, s3: S3Server, roots: Path, tmp_path: Path) -> None:
    build_tiny_gemma(roots / "models" / "tiny")
    settings = settings.model_copy(update={"artifacts_url": s3.url()})
    with serving(settings) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        made = client.post("/datasets", files={"train": sft_lines(400), "dev": sft_lines(1)}).json()
        path = f"/datasets/{made['id']}"
        assert (
            client.post("/datasets", files={"train": sft_lines(400), "dev": sft_lines(1)}).status_code == 200
        )
        part = client.get(made["splits"]["train"]["url"], headers={"range": "bytes=100-199"})
        assert (part.status_code, part.content) == (206, sft_lines(400)[100:200])
        assert client.get(f"{path}/records", params={"offset": 399}).json()["items"][0]["line"] == 400
        assert client.get(f"{path}/statistics", params={"model": "tiny"}).json()["counted"] == 400
        fetched = fetch(settings, made["id"], tmp_path / "inputs" / "data")
        assert (fetched / "train.json").read_bytes() == sft_lines(400)
        assert client.delete(path).status_code == 204
        assert client.get(made["splits"]["dev"]["url"]).status_code == 404
    assert artifacts_for(settings.artifacts_url).list("datasets") == []
    assert stored_files(settings.data_dir) == set()


def fetch(settings: Settings, dataset_id: str, folder: Path) -> Path:
    """As the host of a job does it."""
    database = Database(settings.database_url)
    with database.reading() as session:
        row = find_dataset(session, "default", dataset_id)
    database.dispose()
    assert row is not None
    fetch_dataset(artifacts_for(settings.artifacts_url), row, folder)
    return folder
