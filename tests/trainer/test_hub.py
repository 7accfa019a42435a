"""Models by their hub names, fetched by real processes from a hub that runs here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fake_hub import FakeHub, model_files, running

ROOT = Path(__file__).parents[2]
FETCH = """
import json, logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
from trainer.config.preflight.hub import Part
from trainer.config.problems import RegattaError
from trainer.hub import model_folder
try:
    print(json.dumps(str(model_folder(sys.argv[1], Part[sys.argv[2]]))))
except RegattaError as error:
    print(json.dumps([problem.as_dict() for problem in error.problems]))
"""
OTHERS = {
    "pytorch_model.bin": b"pickle",
    "model_state.pdparams": b"pickle",
    "README.md": b"readme",
    "onnx/model.safetensors": b"elsewhere",
    "train.py": b"code",
}
NAME = "tiny-org/tiny-gemma"
CHATTING = "tiny-org/chatting"
TEMPLATE = "{% for message in messages %}<{{ message.content }}>{% endfor %}"


class Run:
    """Runs a fetch in a process of its own and gives its answer.

    Attributes:
        log: what the last process logged.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.log = ""
        self._environment = environment

    def __call__(self, name: str, part: str = "MODEL", **changes: str) -> Any:
        command = [sys.executable, "-c", FETCH, name, part]
        environment = self._environment | changes
        found = subprocess.run(
            command, env=environment, cwd=ROOT, timeout=120, capture_output=True, text=True
        )
        assert found.returncode == 0, found.stderr
        self.log = found.stderr
        return json.loads(found.stdout)


@pytest.fixture(scope="module")
def hub(tiny_gemma: Path) -> Iterator[FakeHub]:
    files = model_files(tiny_gemma)
    models = {
        NAME: {**files, **OTHERS},
        "tiny-org/gated": files,
        CHATTING: {**files, "chat_template.jinja": TEMPLATE.encode()},
        "tiny-org/pickled": {"config.json": files["config.json"], "pytorch_model.bin": b"pickle"},
    }
    with running(FakeHub(models, gated=frozenset({"tiny-org/gated"}))) as server:
        yield server


@pytest.fixture
def environment(hub: FakeHub, tmp_path: Path) -> Iterator[dict[str, str]]:
    hub.requests.clear()
    hub.tokens.clear()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    yield clean | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "OMP_NUM_THREADS": "1"}
    hub.status = 200


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    return Run(environment)


class TestFetching:
    def test_a_model_is_fetched_once_and_then_lies_in_the_cache(
        self, hub: FakeHub, run: Run, tiny_gemma: Path
    ):
        folder = Path(run(NAME))
        assert f"fetching {NAME} from {hub.url}" in run.log
        assert {path.name for path in folder.iterdir()} == {path.name for path in tiny_gemma.iterdir()}
        assert all((folder / path.name).read_bytes() == path.read_bytes() for path in tiny_gemma.iterdir())
        hub.requests.clear()
        assert Path(run(NAME)) == folder
        assert hub.requests == []

    def test_only_weights_tokenizer_and_configs_are_fetched(self, hub: FakeHub, run: Run, tiny_gemma: Path):
        run(NAME)
        assert hub.fetched == {path.name for path in tiny_gemma.iterdir()}

    def test_a_tokenizer_comes_without_the_weights(self, hub: FakeHub, run: Run):
        folder = Path(run(NAME, "TOKENIZER"))
        assert (folder / "tokenizer.model").is_file()
        assert "model.safetensors" not in hub.fetched
        assert (Path(run(NAME)) / "model.safetensors").is_file()

    def test_a_revision_may_be_named(self, hub: FakeHub, run: Run):
        run(f"{NAME}@v2")
        assert f"GET /api/models/{NAME}/revision/v2" in hub.requests

    def test_an_interrupted_fetch_goes_on(self, hub: FakeHub, run: Run):
        folder = Path(run(NAME))
        (folder / "model.safetensors").unlink()
        assert Path(run(NAME)) == folder
        assert (folder / "model.safetensors").is_file()

    def test_a_folder_of_that_name_comes_first(self, hub: FakeHub, run: Run, tmp_path: Path):
        path = ROOT / "tests" / "trainer"
        assert Path(run("tests/trainer")) == path.relative_to(ROOT)
        assert hub.requests == []


class TestOffline:
    def test_what_is_in_the_cache_needs_no_connection(self, hub: FakeHub, run: Run):
        folder = run(NAME)
        hub.requests.clear()
        assert run(NAME, HF_HUB_OFFLINE="1") == folder
        assert run(NAME, HF_ENDPOINT="http://127.0.0.1:9") == folder
        assert hub.requests == []

    def test_what_is_not_there_is_refused_with_the_remedy(self, run: Run):
        (problem,) = run(NAME, HF_HUB_OFFLINE="1")
        assert problem["loc"] == [NAME]
        assert "HF_HUB_OFFLINE forbids" in problem["msg"]
        assert "Unset HF_HUB_OFFLINE" in problem["hint"]


class TestRefusals:
    def test_a_hub_that_does_not_answer(self, run: Run):
        (problem,) = run(NAME, HF_ENDPOINT="http://127.0.0.1:9")
        assert "http://127.0.0.1:9 did not answer (ConnectError)" in problem["msg"]
        assert "HF_ENDPOINT" in problem["hint"]

    def test_a_hub_that_is_down(self, hub: FakeHub, run: Run):
        hub.status = 500
        (problem,) = run(NAME)
        assert "answered with HTTP status 500" in problem["msg"]

    def test_a_name_that_is_not_there(self, run: Run):
        (problem,) = run("tiny-org/other")
        assert "is not a model at" in problem["msg"]
        assert "HF_TOKEN" in problem["hint"]

    def test_a_revision_that_is_not_there(self, run: Run):
        (problem,) = run(f"{NAME}@v9")
        assert "has no such revision" in problem["msg"]

    def test_a_model_of_nothing_but_pickles(self, hub: FakeHub, run: Run):
        (problem,) = run("tiny-org/pickled")
        assert "pickled weights are not fetched" in problem["msg"]
        assert "pytorch_model.bin" not in hub.fetched


class TestTokens:
    def test_a_gated_model_needs_one(self, run: Run):
        (problem,) = run("tiny-org/gated")
        assert "only after its terms were accepted" in problem["msg"]
        assert "HF_TOKEN" in problem["hint"]

    def test_the_token_of_the_environment_is_sent_and_never_shown(self, hub: FakeHub, run: Run):
        assert Path(run("tiny-org/gated", HF_TOKEN=hub.token)).is_dir()
        assert hub.tokens == {hub.token}
        assert hub.token not in run.log

    def test_a_wrong_token_is_not_shown_either(self, run: Run):
        wrong = "hf_wrongwrongwrong"
        answer = run("tiny-org/gated", HF_TOKEN=wrong)
        assert wrong not in json.dumps(answer) + run.log

    def test_a_password_in_the_endpoint_is_not_shown(self, run: Run):
        answer = run(NAME, HF_ENDPOINT="http://me:passpass@127.0.0.1:9")
        assert "http://127.0.0.1:9" in answer[0]["msg"]
        assert "passpass" not in json.dumps(answer) + run.log


def test_training_takes_a_hub_name(
    hub: FakeHub, environment: dict[str, str], arguments: dict[str, Any], tmp_path: Path
):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(arguments | {"model_name_or_path": NAME, "max_steps": 1}))
    command = [sys.executable, "-m", "trainer", "finetune", str(config)]
    done = subprocess.run(command, env=environment, cwd=ROOT, timeout=150, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"fetching {NAME} from {hub.url}" in done.stdout
    assert (tmp_path / "output" / "model.safetensors").is_file()


def test_preference_training_takes_the_chat_template_of_a_model_that_is_fetched(
    environment: dict[str, str], tmp_path: Path
):
    data, config = tmp_path / "train.jsonl", tmp_path / "config.json"
    data.write_text(json.dumps({"src": "Who?", "response": ["The pilot.", "Nobody."], "sort": [1, 0]}))
    names = {"model_name_or_path": CHATTING, "chat_template": CHATTING}
    paths = {"train_dataset_path": str(data), "output_dir": str(tmp_path / "output")}
    sizes = {"max_steps": 1, "max_seq_len": 64, "max_prompt_len": 32, "do_train": True}
    config.write_text(json.dumps(names | paths | sizes))
    command = [sys.executable, "-m", "trainer", "dpo", str(config)]
    done = subprocess.run(command, env=environment, cwd=ROOT, timeout=150, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "output" / "chat_template.jinja").read_text() == TEMPLATE


def test_training_ends_with_a_config_error_when_there_is_no_such_model(
    environment: dict[str, str], arguments: dict[str, Any], tmp_path: Path
):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(arguments | {"model_name_or_path": "tiny-org/other"}))
    command = [sys.executable, "-m", "trainer", "finetune", str(config)]
    done = subprocess.run(command, env=environment, cwd=ROOT, timeout=150, capture_output=True, text=True)
    assert done.returncode == 2
    assert "model_name_or_path: tiny-org/other is not a model at" in done.stdout
