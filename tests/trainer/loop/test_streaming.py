"""`lazy`: the training data is read while it is trained on, in the order of the files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training import PAIRS, Recorder, tensors_of, write_records
from trainer.config import DataError, FinetuneConfig
from trainer.run import run_task

MakeConfig = Callable[..., FinetuneConfig]


def run(config: FinetuneConfig, stop_after: int | None = None) -> tuple[dict[str, Any], Recorder]:
    recorder = Recorder()

    def should_stop() -> bool:
        return stop_after is not None and len(recorder.of("metric")) >= stop_after

    return run_task("finetune", config, recorder.writer, should_stop), recorder


def losses(recorder: Recorder) -> list[float]:
    return [metric["loss"] for metric in recorder.of("metric")]


@pytest.mark.parametrize(
    "packing", [{}, {"zero_padding": True}, {"zero_padding": True, "greedy_zero_padding": True}]
)
@pytest.mark.parametrize("stop_after", [1, 5, 6])
def test_a_stream_goes_on_over_epochs_and_resumes_bit_for_bit(
    make_config: MakeConfig, packing: dict[str, bool], stop_after: int
) -> None:
    stream = {"lazy": True, "max_steps": 9, "max_length": 64, "save_strategy": "no", **packing}
    whole, recorder = run(make_config(output_dir="whole", **stream))
    config = make_config(output_dir="parts", **stream)
    _, first = run(config, stop_after)
    resumed, rest = run(config)
    assert losses(first) + losses(rest) == losses(recorder)
    assert tensors_of(Path(resumed["path"])) == tensors_of(Path(whole["path"]))
    assert recorder.of("metric")[-1]["epoch"] > 1


def test_a_stream_has_the_order_of_the_files_whatever_the_seed(make_config: MakeConfig) -> None:
    stream = {"lazy": True, "max_steps": 5}
    _, one = run(make_config(output_dir="one", **stream))
    _, two = run(make_config(output_dir="two", seed=99, **stream))
    assert losses(one) == losses(two)


def test_folders_and_compressed_files_are_streamed_in_the_order_of_their_names(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    write_records(tmp_path / "single" / "train.json", [*PAIRS])
    parts = tmp_path / "parts" / "train"
    write_records(parts / "a.jsonl", [*PAIRS[:7]])
    lines = "".join(json.dumps({"src": src, "tgt": tgt}) + "\n" for src, tgt in PAIRS[7:])
    (parts / "b.json.gz").write_bytes(gzip.compress(lines.encode()))
    stream = {"lazy": True, "max_steps": 7}
    found = [
        losses(run(make_config(output_dir=name, dataset_name_or_path=str(tmp_path / name), **stream))[1])
        for name in ("single", "parts")
    ]
    assert found[0] == found[1]


def test_an_epoch_strategy_works_at_the_end_of_the_stream(make_config: MakeConfig) -> None:
    _, recorder = run(
        make_config(lazy=True, max_steps=8, evaluation_strategy="epoch", save_strategy="no", logging_steps=4)
    )
    assert [evaluation["step"] for evaluation in recorder.of("eval")] == [4, 8]
    assert recorder.of("progress")[0]["total_epochs"] is None


def test_a_stream_with_nothing_to_learn_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    write_records(tmp_path / "long" / "train.json", [("a source of far too many words", "x")] * 3)
    config = make_config(
        lazy=True, max_steps=2, dataset_name_or_path=str(tmp_path / "long"), src_length=8, max_length=8
    )
    with pytest.raises(DataError, match=r"none of the 3 records .* train.json line 1 \(its source alone"):
        run(config)


def test_a_stream_without_a_full_batch_is_refused(make_config: MakeConfig) -> None:
    config = make_config(lazy=True, max_steps=2, per_device_train_batch_size=100, dataloader_drop_last=True)
    with pytest.raises(DataError, match="every batch of the training data is dropped"):
        run(config)
