"""What is said about a model's hub name before anything is fetched."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest

from trainer.config import FinetuneConfig
from trainer.config.preflight import Roots, check_job
from trainer.config.preflight.hub import HubName

Config = Callable[..., FinetuneConfig]
NAME = "google/gemma-2b"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's library."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "hub").mkdir()
    return tmp_path / "hub"


def fill(cache: Path, model: Path) -> Path:
    """Put a model into the cache as the hub's library does: files are links to blobs."""
    repository = cache / "models--google--gemma-2b"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for path in model.iterdir():
        shutil.copy(path, repository / "blobs" / path.name)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    return snapshot


@pytest.mark.parametrize(
    "text", [NAME, "bellegroup/belle-7b-2m", "a/b", "a/b@main", "a/b@refs/pr/1", "A_1/b.c"]
)
def test_names_are_told_from_paths(text: str):
    name = HubName.parse(text)
    assert name is not None
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "gemma",
        "/a/b",
        "a/b/c",
        "./a/b",
        "../b",
        "a/..",
        "a/b@",
        "a/b@../c",
        "job:1/a",
        "a//b",
        "~/b",
        "a/b\n",
        "",
    ],
)
def test_paths_and_references_are_no_names(text: str):
    assert HubName.parse(text) is None


def test_only_models_of_the_table_are_known():
    assert HubName("bigscience/bloomz-7b1-mt").known
    assert not HubName("bigscience/bloom").known


def test_a_folder_under_a_root_comes_first(config: Config, roots: Roots, model: Path, cache: Path):
    fill(cache, model)
    (roots.models[0] / "google").mkdir()
    local = model.rename(roots.models[0] / NAME)
    checked = check_job(config(model_name_or_path=NAME), roots)
    assert checked.problems == ()
    assert checked.config.resolved()["model_name_or_path"] == str(local)


def test_a_model_of_the_cache_is_checked_like_any_other(
    config: Config, roots: Roots, model: Path, cache: Path
):
    snapshot = fill(cache, model)
    checked = check_job(config(model_name_or_path=NAME, save_strategy="no"), roots)
    assert (checked.problems, checked.warnings) == ((), ())
    assert checked.config.resolved()["model_name_or_path"] == str(snapshot)
    assert checked.config.resolved()["tokenizer_name_or_path"] == str(snapshot)
    (snapshot.parents[1] / "blobs" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (problem,) = check_job(config(model_name_or_path=NAME), roots).problems
    assert problem.loc == ("model_name_or_path", "config.json")


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json"])
def test_half_a_model_in_the_cache_is_as_good_as_none(
    config: Config, roots: Roots, model: Path, cache: Path, missing: str
):
    (fill(cache, model) / missing).unlink()
    (problem,) = check_job(config(model_name_or_path=NAME), roots).problems
    assert "not in the cache" in problem.msg


def test_without_leave_to_fetch_it_is_refused_with_the_remedy(config: Config, roots: Roots, cache: Path):
    (problem,) = check_job(config(model_name_or_path=NAME), roots).problems
    assert problem.loc == ("model_name_or_path",)
    assert str(roots.models[0]) in problem.msg
    assert "REGATTA_ALLOW_HUB=true" in problem.hint


def test_with_leave_to_fetch_the_name_stays_and_a_warning_says_so(config: Config, roots: Roots, cache: Path):
    for allowed in (replace(roots, hub=True), None):
        given = config(model_name_or_path=NAME, save_strategy="no")
        if allowed is None:
            given = given.model_copy(update={"dataset_name_or_path": str(roots.data[0] / "sft")})
        checked = check_job(given, allowed)
        assert checked.problems == ()
        assert "is fetched from the Hugging Face hub when the job starts" in checked.warnings[0].msg
        assert checked.config.resolved()["model_name_or_path"] == NAME


def test_a_tokenizer_may_have_a_hub_name_of_its_own(config: Config, roots: Roots, model: Path, cache: Path):
    snapshot = fill(cache, model)
    (snapshot / "model.safetensors").unlink()
    checked = check_job(config(tokenizer_name_or_path=NAME), roots)
    assert checked.problems == ()
    assert checked.config.resolved()["tokenizer_name_or_path"] == str(snapshot)
    assert checked.config.resolved()["model_name_or_path"] == str(model)


def test_a_link_out_of_the_roots_is_not_taken_for_a_hub_name(config: Config, roots: Roots, cache: Path):
    (roots.models[0] / "google").mkdir()
    (roots.models[0] / NAME).symlink_to("/etc")
    (problem,) = check_job(config(model_name_or_path=NAME), replace(roots, hub=True)).problems
    assert "outside the allowed" in problem.msg
