"""How long an asynchronous save keeps training waiting, against a synchronous one.

Trains a fresh Gemma whose weights and optimizer state take the wanted room, and saves checkpoints of it in
both ways by turns, some steps after each other. Measured: how long the loop is kept in the call that saves.
The files of both ways must have the same bytes. The first asynchronous save also has to find its memory, so
it is told apart; and so is how much slower steps are while a checkpoint is written beside them.

    python benchmarks/async_save.py [--megabytes 300] [--rounds 3]
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from trainer.ops.host import import_paddle  # noqa: E402

import_paddle()

import numpy as np  # noqa: E402
import paddle  # noqa: E402

from benchmarks.results import table, write_section  # noqa: E402
from trainer.checkpoint.directory import MANIFEST  # noqa: E402
from trainer.checkpoint.optimizer_state import optimizer_files  # noqa: E402
from trainer.checkpoint.pieces import Contents, TensorFiles, held_pieces  # noqa: E402
from trainer.checkpoint.saver import Saver  # noqa: E402
from trainer.checkpoint.target import whole_directory_target  # noqa: E402
from trainer.config import FinetuneConfig  # noqa: E402
from trainer.models.directory import new_model  # noqa: E402
from trainer.models.gemma.configuration import GemmaConfig  # noqa: E402
from trainer.parallel.update import Updater  # noqa: E402
from trainer.parallel.update_choice import make_updater  # noqa: E402

HIDDEN, INNER, HEADS, VOCABULARY = 512, 2_048, 4, 4_000
#: A weight and two moments of AdamW, in float32.
BYTES_PER_NUMBER = 12
RATE, TOKENS = 1e-4, 64
STEPS_ALONE = 3
LIMIT = 0.15


def numbers(layers: int) -> int:
    """Numbers in a model of so many layers."""
    attention = HIDDEN * HIDDEN * 2 + 2 * HIDDEN * (HIDDEN // HEADS)
    return VOCABULARY * HIDDEN + layers * (attention + 3 * HIDDEN * INNER + 2 * HIDDEN)


def fresh_updater(megabytes: float) -> Updater:
    """A model with its optimizer, of about this size."""
    layers = next(n for n in range(1, 10_000) if numbers(n) * BYTES_PER_NUMBER >= megabytes * 1e6)
    config = GemmaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        head_dim=HIDDEN // HEADS,
    )
    arguments = FinetuneConfig(model_name_or_path="fresh", dataset_name_or_path="none", output_dir="none")
    return make_updater(new_model(config), arguments)


def take_step(updater: Updater) -> None:
    ids = paddle.to_tensor(np.arange(3, 3 + TOKENS).reshape(1, TOKENS))
    (updater.model.loss(ids, ids + 1).sum / TOKENS).backward()
    updater.step(RATE)


def contents(updater: Updater) -> Contents:
    weights = TensorFiles("model", "pt", tuple(held_pieces(updater.weights())))
    return Contents([weights, optimizer_files(updater)])


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    updater = fresh_updater(arguments.megabytes)
    take_step(updater)
    alone = [seconds(lambda: take_step(updater)) for _ in range(STEPS_ALONE)]
    waited: dict[str, list[float]] = {"synchronous": [], "asynchronous": []}
    beside: list[float] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        savers = {way: Saver(folder, asynchronous=way == "asynchronous") for way in waited}
        for _ in range(1 + arguments.rounds):
            for way, saver in savers.items():
                save = partial(saver.save, whole_directory_target(folder / way), contents(updater))
                waited[way].append(seconds(save))
            while savers["asynchronous"].is_saving:
                beside.append(seconds(lambda: take_step(updater)))
            savers["asynchronous"].wait()
            if len({(folder / way / MANIFEST).read_text() for way in waited}) > 1:
                raise AssertionError("the two ways wrote different files")
            take_step(updater)
        size = sum(path.stat().st_size for path in (folder / "synchronous").iterdir())
    (_, *at_once), (first, *copying) = waited["synchronous"], waited["asynchronous"]
    ratio = statistics.median(copying) / statistics.median(at_once)
    slower = statistics.median(beside) / statistics.median(alone) if beside else 1.0
    rows = [
        ["a synchronous save", f"{statistics.median(at_once):.2f} s"],
        ["an asynchronous save", f"{statistics.median(copying):.3f} s"],
        ["the first asynchronous save", f"{first:.2f} s"],
        ["asynchronous over synchronous", f"{ratio:.3f}"],
    ]
    about = (
        f"How long training waits while {size / 1e6:.0f} MB are saved, medians of {arguments.rounds} rounds;"
        f" limit of the ratio {LIMIT}. A step took {slower:.1f} times as long beside a save.\n\n"
    )
    write_section("Asynchronous saves", about + table(["", "training waits"], rows))
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
