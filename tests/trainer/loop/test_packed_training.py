"""Zero padding changes speed, never the numbers: a packed batch is the unpacked one."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.training import Recorder, tensors_of
from trainer import load_model, load_tokenizer
from trainer.config import FinetuneConfig
from trainer.config.records import parse_sft_line
from trainer.data.batches import Batch, Collator
from trainer.data.packing import Row, pack
from trainer.data.sft import Example, PlainEncoder
from trainer.loop.engine import SingleEngine
from trainer.loop.evaluation import EvaluationData, evaluate
from trainer.loop.objective import loss_pass
from trainer.run import run_task

SHARED = Path(__file__).parents[4] / "shared" / "data" / "sft" / "train.json"
SHIPPED = Path(__file__).parents[3] / "cli" / "demo" / "data" / "train.json"
LENGTH = 400

MakeConfig = Callable[..., FinetuneConfig]


def read(path: Path, directory: Path, count: int) -> list[Example]:
    encoder = PlainEncoder(load_tokenizer(directory), 64, 150)
    with path.open(encoding="utf-8") as lines:
        return [encoder.example(parse_sft_line(line)) for _, line in zip(range(count), lines, strict=False)]


def loss_and_gradients(directory: Path, rows: list[Row], side: str) -> tuple[float, dict[str, np.ndarray]]:
    model = load_model(directory)
    model.eval()  # BLOOM's dropout draws for each token; here it would only hide differences
    batch: Batch = Collator(0, side, length=LENGTH)(rows)
    loss = model.run(loss_pass(batch)).sum() / batch.label_tokens
    loss.backward()
    gradients = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    return float(loss), gradients


@pytest.mark.parametrize("family", ["gemma", "bloom"])
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(SHIPPED, id="shipped"),
        pytest.param(SHARED, id="real", marks=pytest.mark.skipif(not SHARED.exists(), reason="no ../shared")),
    ],
)
def test_a_packed_batch_has_the_loss_and_the_gradients_of_the_unpacked_one(
    family: str, greedy: bool, data: Path, request: pytest.FixtureRequest
) -> None:
    directory = request.getfixturevalue(f"tiny_{family}")
    examples: list[Row] = [*read(data, directory, 12)]
    rows: list[Row] = [*pack([row.parts[0] for row in examples], LENGTH, greedy=greedy)]
    assert len(rows) < len(examples)
    loss, gradients = loss_and_gradients(directory, examples, "left")
    packed_loss, packed = loss_and_gradients(directory, rows, "right")
    assert packed_loss == pytest.approx(loss, abs=1e-6)
    for name, gradient in gradients.items():
        difference = np.linalg.norm(packed[name] - gradient) / max(np.linalg.norm(gradient), 1e-12)
        assert difference < 1e-5, name


def test_without_documents_in_the_mask_the_loss_would_be_another(tiny_gemma: Path) -> None:
    rows = list(pack(read(SHIPPED, tiny_gemma, 6), LENGTH, greedy=False))
    model, batch = load_model(tiny_gemma), Collator(0, "right")(rows)
    naive = Batch(batch.input_ids, batch.labels, np.minimum(batch.documents, 1), batch.position_ids)
    right, wrong = (float(model.run(loss_pass(one))[0]) for one in (batch, naive))
    assert abs(right - wrong) / right > 1e-5


@pytest.mark.parametrize("greedy", [False, True])
def test_evaluation_of_packs_gives_the_same_metrics(tiny_gemma: Path, greedy: bool) -> None:
    examples = read(SHIPPED, tiny_gemma, 10)
    collate, model = Collator(0, "left"), load_model(tiny_gemma)
    packs = list(pack(examples, LENGTH, greedy=greedy))

    def measure(rows: list[Row]) -> dict[str, float]:
        data = EvaluationData(rows, len(examples))
        metrics = evaluate(SingleEngine(model), data, collate, 2, lambda: False)
        assert metrics is not None
        return metrics

    expected, found = measure([*examples]), measure([*packs])
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], abs=1e-6)
    assert found["eval_accuracy"] == expected["eval_accuracy"]


@pytest.mark.parametrize("stop", [3, None])
def test_a_packed_run_reports_its_padding_and_resumes_bit_for_bit(
    make_config: MakeConfig, stop: int | None
) -> None:
    settings = {
        "zero_padding": True,
        "max_length": 80,
        "num_train_epochs": 3,
        "per_device_train_batch_size": 1,
        "evaluation_strategy": "epoch",
        "neftune": True,
    }
    whole, recorder = _run(make_config(output_dir="whole", **settings))
    metrics = recorder.of("metric")
    assert 0 < metrics[-1]["padding_share"] < 0.6
    assert whole["metrics"]["padding_share"] == metrics[-1]["padding_share"]
    assert metrics[-1]["tokens"] == whole["metrics"]["train_tokens"]
    config = make_config(output_dir="parts", save_steps=stop or 500, **settings)
    _run(config, stop)
    resumed, _ = _run(config)
    assert tensors_of(Path(resumed["path"])) == tensors_of(Path(whole["path"]))
    state = json.loads((Path(resumed["path"]) / "trainer_state.json").read_text())
    assert state["num_padding_tokens"] > 0


def _run(config: FinetuneConfig, stop_after: int | None = None) -> tuple[dict, Recorder]:
    recorder = Recorder()

    def should_stop() -> bool:
        return stop_after is not None and len(recorder.of("metric")) >= stop_after

    return run_task("finetune", config, recorder.writer, should_stop), recorder
