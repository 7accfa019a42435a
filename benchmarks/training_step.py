"""What each formulation gains in a training step on CPU, and how far a step is from its matrix products.

A Gemma of 46 million fresh weights (hidden 512, 8 layers, 8 heads that share one key head of 64, vocabulary
32000) trains in fp32 with AdamW on two rows of 512 random tokens, by `train_step`, `SingleEngine` and the
updater that a run has. The first row of the table computes everything as Paddle's own functions do; each
further row puts one of the trainer's formulations in their place, and the one named "all" is the trainer as
it is. Below: the same trainer with LoRA, and on short documents whose padding is computed, or left out.

"products" makes the step's matrix products alone, in a process of the same kind: the share of a row is the
time of those over the time of the row.

Each row runs in fresh processes, one after another in rounds, so that a busy machine slows all of them; the
medians of the rounds are shown. Time is measured twice: by the clock, and as what the main thread computed,
which is what the step would take on a machine of its own (threads that wait do not compute: KMP_BLOCKTIME is
0).

    python benchmarks/training_step.py [--rounds 2] [--only ROW ...] [--seconds 170] [--steps 2]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.results import table, write_section  # noqa: E402

TITLE = "Training step on CPU"
ABOUT = """A full fp32 step with AdamW of a Gemma of 46 million weights on 2 x 512 tokens; each row adds one
formulation to those above it. Computing: seconds that the main thread computed, which a busy machine does not
stretch. The share is the time of the step's matrix products alone over that of the step, both in such
seconds. Short rows: 6 of 60 to 512 tokens, counted without padding."""
TOKENS, ROWS, BLOCK, CHUNK = 512, 2, 128, 512
SHORT = (512, 180, 90, 60, 140, 300)
FIRST_ORDINARY_ID = 3
RATE = 1e-5
SIZES = {
    "vocab_size": 32_000,
    "hidden_size": 512,
    "intermediate_size": 2_048,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 64,
}
#: The formulations in the order in which the rows take them up, and how the rows are called.
PARTS = ("kernels", "memory", "attention", "loss", "layers", "update")
NAMES = {
    "stock": "Paddle's own functions",
    "kernels": "+ MKL's AVX2 kernels",
    "memory": "+ memory kept, no strided views",
    "attention": "+ attention in blocks",
    "loss": "+ loss in chunks",
    "layers": "+ norm, rotation, GeGLU",
    "update": "+ clipping in place: all",
    "lora": "all, LoRA of rank 8",
    "padded": "all, short rows with their padding",
    "packed": "all, short rows packed",
    "products": "the matrix products alone",
}


@dataclass(frozen=True)
class Found:
    """What a process measured: seconds by the clock and of the main thread, bytes at the peak, tokens."""

    clock: float
    thread: float
    peak: int
    tokens: int
    loss: float | None = None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=170.0, help="no further round begins after these")
    parser.add_argument("--steps", type=int, default=2, help="measured after a first one; 0: that one alone")
    parser.add_argument("--only", nargs="+", choices=list(NAMES), default=list(NAMES), metavar="ROW")
    parser.add_argument("--row", choices=list(NAMES), help="measure this one alone, in this process")
    options = parser.parse_args()
    if options.row:
        print(json.dumps(asdict(measure(options.row, options.steps))))
        return 0
    rows = list(dict.fromkeys([*options.only, "products"]))
    text = show(rounds(rows, options.rounds, options.seconds, options.steps))
    if set(rows) == set(NAMES):
        write_section(TITLE, f"{ABOUT}\n\n{text}")
    else:
        print(text)
    return 0


def rounds(rows: Sequence[str], count: int, seconds: float, steps: int) -> dict[str, list[Found]]:
    """Every row once in each round."""
    found: dict[str, list[Found]] = {row: [] for row in rows}
    began = time.monotonic()
    for number in range(count):
        if number and time.monotonic() - began > seconds:
            break
        for row in rows:
            found[row].append(started(row, steps))
    return found


def started(row: str, steps: int) -> Found:
    """Measure a row in a fresh process."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MKL_", "FLAGS_"))}
    environment.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    environment["KMP_BLOCKTIME"] = "0"
    command = [sys.executable, __file__, "--row", row, "--steps", str(steps)]
    answer = subprocess.run(
        command, env=environment, check=True, timeout=170, stdout=subprocess.PIPE, text=True
    )
    return Found(**json.loads(answer.stdout.splitlines()[-1]))


def parts_of(row: str) -> tuple[str, ...]:
    """The formulations of the trainer that a row uses."""
    if row == "stock":
        return ()
    return PARTS[: PARTS.index(row) + 1] if row in PARTS else PARTS


def show(found: dict[str, list[Found]]) -> str:
    """The table of all rows."""
    middle = {row: median(several) for row, several in found.items()}
    bound = middle["products"].thread
    lines = []
    for row, one in middle.items():
        whole = row in ("stock", *PARTS)
        share = f"{bound / one.thread:.0%}" if whole else ""
        loss = "" if one.loss is None else f"{one.loss:.6f}"
        speeds = f"{one.tokens / one.clock:.0f}", f"{one.tokens / one.thread:.0f}"
        lines.append((NAMES[row], *speeds, share, f"{one.peak / 1e6:.0f} MB", loss))
    heads = (
        "",
        "tokens/s",
        "tokens/s of computing",
        "share of the products",
        "peak memory",
        "loss of the first step",
    )
    return table(heads, lines)


def median(several: Sequence[Found]) -> Found:
    """The middle of what several processes measured of one row; the largest peak."""
    return Found(
        statistics.median(one.clock for one in several),
        statistics.median(one.thread for one in several),
        max(one.peak for one in several),
        several[0].tokens,
        several[0].loss,
    )


def measure(row: str, steps: int) -> Found:
    """Measure a row in this process."""
    parts = parts_of(row)
    from trainer.ops.host import choose_mkl_kernels, import_paddle

    if "memory" in parts:
        import_paddle()
    elif "kernels" in parts:
        choose_mkl_kernels()
    import paddle

    if row == "products":
        return timed(products(paddle), ROWS * TOKENS, steps)
    replace_formulations(set(PARTS) - set(parts))
    return timed(training(row), sum(SHORT) if row in ("packed", "padded") else ROWS * TOKENS, steps)


def timed(step: Callable[[], float | None], tokens: int, steps: int) -> Found:
    """The fastest of some steps after a first one, which makes the optimizer's state and warms up memory."""
    clocks, threads, losses = [], [], []
    for _ in range(steps + 1):
        began = time.perf_counter(), time.thread_time()
        losses.append(step())
        clocks.append(time.perf_counter() - began[0])
        threads.append(time.thread_time() - began[1])
    measured = slice(min(1, steps), None)
    return Found(min(clocks[measured]), min(threads[measured]), peak_memory(), tokens, losses[0])


def peak_memory() -> int:
    """The peak resident memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def training(row: str) -> Callable[[], float]:
    """One optimizer step at a time, on the same batch; gives its loss."""
    import numpy as np

    from trainer.config import FinetuneConfig
    from trainer.data.batches import Collator
    from trainer.data.sft import Example
    from trainer.loop.adapters import lora_settings
    from trainer.loop.engine import SingleEngine
    from trainer.loop.objective import Supervised
    from trainer.loop.step import train_step
    from trainer.models.directory import new_model
    from trainer.models.gemma.configuration import GemmaConfig
    from trainer.parallel.update_choice import make_updater
    from trainer.peft.lora.adapter import add_lora

    generator = np.random.default_rng(0)

    def example(length: int) -> Example:
        ids = generator.integers(FIRST_ORDINARY_ID, SIZES["vocab_size"], length + 1).astype(np.int32)
        return Example(ids[:-1], ids[1:], cut=False, lost_turns=0)

    lengths = SHORT if row in ("packed", "padded") else (TOKENS,) * ROWS
    batch = Collator(0, "right")([example(length) for length in lengths])
    if row == "padded":
        batch.documents[:] = 1
        batch.position_ids[:] = np.arange(batch.position_ids.shape[1])
    config = FinetuneConfig(
        model_name_or_path="fresh", output_dir="none", dataset_name_or_path="none", lora=row == "lora"
    )
    model = new_model(GemmaConfig.from_dict(SIZES))
    if row == "lora":
        add_lora(model, lora_settings(config, "fresh"))
    model.train()
    update, engine = make_updater(model, config), SingleEngine(model)

    def step() -> float:
        return train_step(engine, update, Supervised(), [batch], step=1, rate=RATE).loss

    return step


def products(paddle: Any) -> Callable[[], None]:
    """The matrix products of one step's forward and backward passes, and nothing else."""

    def make(*shape: int) -> Any:
        return paddle.rand(shape)

    def linear(rows: int, inputs: int, outputs: int) -> Iterator[tuple[Any, Any, bool, bool]]:
        x, weight, grad = make(rows, inputs), make(inputs, outputs), make(rows, outputs)
        yield from ((x, weight, False, False), (grad, weight, False, True), (x, grad, True, False))

    def attention(group: int, width: int) -> Iterator[tuple[Any, Any, bool, bool]]:
        for end in range(BLOCK, TOKENS + 1, BLOCK):
            sizes = (BLOCK * group, width), (end, width), (BLOCK * group, end)
            rows, keys, scores = (make(ROWS, *size) for size in sizes)
            yield from ((rows, keys, False, True), (scores, keys, False, False)) * 2
            yield from ((scores, rows, True, False),) * 2

    hidden, inner, vocabulary = SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["vocab_size"]
    heads, width, tokens = SIZES["num_attention_heads"], SIZES["head_dim"], ROWS * TOKENS
    layer = [*attention(heads, width)]
    for inputs, outputs in (
        (hidden, heads * width),
        (hidden, width),
        (hidden, width),
        (heads * width, hidden),
        (hidden, inner),
        (hidden, inner),
        (inner, hidden),
    ):
        layer += linear(tokens, inputs, outputs)
    rows, weight, slopes = make(CHUNK, hidden), make(vocabulary, hidden), make(CHUNK, vocabulary)
    head = [(rows, weight, False, True), (slopes, weight, False, False), (slopes, rows, True, False)]
    work = layer * SIZES["num_hidden_layers"] + head * (tokens // CHUNK)

    def step() -> None:
        for a, b, turn_a, turn_b in work:
            paddle.matmul(a, b, transpose_x=turn_a, transpose_y=turn_b)

    return step


def replace_formulations(parts: Collection[str]) -> None:
    """Put Paddle's own functions in the place of these parts of the trainer."""
    import trainer.models.base as base
    import trainer.models.gemma.modeling as gemma
    import trainer.models.layers as layers
    from trainer.parallel import clip

    if "attention" in parts:
        base.causal_attention = stock_attention
    if "loss" in parts:
        layers.linear_cross_entropy = stock_loss
    if "layers" in parts:
        gemma.rms_norm, gemma.rotate, gemma.geglu = stock_norm, stock_rotate, stock_geglu
    if "update" in parts:
        clip._scaled = lambda gradient, factor: gradient * stock_tensor(factor)


def stock_tensor(number: float) -> Any:
    import paddle

    return paddle.to_tensor(number, "float32")


def stock_attention(
    q: Any, k: Any, v: Any, lengths: tuple[int, ...], heads: int, kv_heads: int, **options: Any
) -> Any:
    import paddle.nn.functional as functional

    def rows(x: Any, count: int) -> Any:
        x = x.reshape([len(lengths), lengths[0], count, -1])
        return x.repeat_interleave(heads // count, axis=2)

    out = functional.scaled_dot_product_attention(
        rows(q, heads), rows(k, kv_heads), rows(v, kv_heads), is_causal=True
    )
    return out.reshape(q.shape)


def stock_loss(hidden: Any, weight: Any, labels: Any) -> Any:
    import paddle
    import paddle.nn.functional as functional

    from trainer.ops.linear_cross_entropy import TokenLoss

    logits = paddle.matmul(hidden, weight, transpose_y=True)
    total = functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
    return TokenLoss(total, int((labels >= 0).sum()), None)


def stock_norm(x: Any, weight: Any, epsilon: float) -> Any:
    import paddle

    return x * paddle.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * (1.0 + weight)


def stock_rotate(x: Any, table: Any) -> Any:
    import paddle

    width = table.rotation.shape[0]
    heads = x.reshape([x.shape[0], -1, width])
    a, b = heads[..., : width // 2], heads[..., width // 2 :]
    return x * table.cos + paddle.concat([-b, a], axis=-1).reshape(x.shape) * table.sin


def stock_geglu(gate: Any, up: Any) -> Any:
    import paddle.nn.functional as functional

    return functional.gelu(gate, approximate=True) * up


if __name__ == "__main__":
    sys.exit(main())
