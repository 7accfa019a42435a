"""Models by their names on the Hugging Face hub: whether a job may ask for them is the operator's choice."""

from pathlib import Path
from typing import Any

import httpx
import huggingface_hub.constants
import pytest

from store.settings import Settings
from tests.api.parts import serving

NAME = "google/gemma-2b"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model of this machine's cache takes part."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_it_is_refused_with_the_setting_that_would_allow_it(
    client: httpx.Client, config: dict[str, Any]
) -> None:
    answer = client.post("/jobs", json={"task": "finetune", "config": config | {"model_name_or_path": NAME}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["loc"] == ["body", "config", "model_name_or_path"]
    assert "REGATTA_ALLOW_HUB=true" in error["hint"]


def test_it_is_left_to_the_trainer_where_the_operator_allows_it(
    settings: Settings, config: dict[str, Any]
) -> None:
    allowed = settings.model_copy(update={"allow_hub": True})
    with serving(allowed) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        body = {"task": "finetune", "config": config | {"model_name_or_path": NAME}}
        created = client.post("/jobs", json=body)
        assert created.status_code == 201, created.text
        assert created.json()["resolved_config"]["model_name_or_path"] == NAME
        body["config"]["model_name_or_path"] = "google/../gemma"
        assert client.post("/jobs", json=body).status_code == 422
