"""The models that a config may name."""

import json
from pathlib import Path

import httpx
import pytest

from api.models import MOST_FOLDERS, local_models
from trainer.config.preflight import Roots


def test_known_models_and_those_below_the_roots_are_listed_by_name(client: httpx.Client, roots: Path) -> None:
    nested = roots / "models" / "owner" / "adapter"
    nested.mkdir(parents=True)
    (nested / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    page = client.get("/models").json()
    models = {model["name"]: model for model in page["items"]}
    assert [*models] == sorted(models)
    assert (models["gemma"]["available"], models["gemma"]["model_type"]) == ("local", "gemma")
    assert models["owner/adapter"]["adapter"] is True
    known = models["google/gemma-2b"]
    assert (known["known"], known["parameters"], known["available"]) == (True, 2_506_172_416, "absent")
    assert page["incomplete"] is False


def test_pages_of_models(client: httpx.Client) -> None:
    first = client.get("/models", params={"limit": 3}).json()
    second = client.get("/models", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert first["items"][-1]["name"] < second["items"][0]["name"]


def test_the_details_of_a_model_here(refusing_client: httpx.Client) -> None:
    model = refusing_client.get("/models/gemma").json()
    assert (model["bytes"], model["tensors"], model["has_tokenizer"], model["problem"]) == (16, 1, True, None)


def test_the_details_of_a_model_that_is_not_here(refusing_client: httpx.Client) -> None:
    model = refusing_client.get("/models/bigscience/bloom-560m").json()
    assert model["sizes"] == {"hidden_size": 1024, "layers": 24, "heads": 16}
    assert (model["available"], model["bytes"]) == ("absent", None)


def test_broken_weights_are_told(client: httpx.Client, roots: Path) -> None:
    (roots / "models" / "gemma" / "model.safetensors").write_bytes(b"short")
    assert "not a whole safetensors file" in client.get("/models/gemma").json()["problem"]


@pytest.mark.parametrize(
    "name", ["nothing", "../data", "owner/nothing", "%2e%2e/%2e%2e/etc", "%00", "gem%00ma"]
)
def test_other_names_are_not_found(refusing_client: httpx.Client, name: str) -> None:
    assert refusing_client.get(f"/models/{name}").status_code == 404


def test_a_list_looks_at_a_bounded_number_of_folders(tmp_path: Path) -> None:
    for number in range(MOST_FOLDERS + 1):
        (tmp_path / f"model-{number:04}").mkdir()
    last = tmp_path / f"model-{MOST_FOLDERS:04}"
    (last / "config.json").write_text(json.dumps({"model_type": "gemma"}))
    assert local_models(Roots((tmp_path,), ())) == ([], False)
