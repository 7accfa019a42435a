"""How much of a GPU's arithmetic full fine-tuning of a Gemma-2B shape uses.

Trains fresh weights in bfloat16 (O2: with float32 masters), with flash attention, on random tokens; then
measures what the same GPU reaches in a large bfloat16 matrix product. Model FLOPs utilization is what a step
needs (6 per weight and token, attention's two products in three passes, half of them for the causal mask;
nothing that is computed twice) over what the GPU could have done in that time.

At most ten minutes on one device. Without one it says so and ends with status 1.

    python benchmarks/gpu_step.py [--rows 4] [--length 2048] [--steps 10]
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import table, write_section
from trainer.config import FinetuneConfig
from trainer.ops.host import import_paddle

import_paddle()

import numpy as np  # noqa: E402
import paddle  # noqa: E402

from trainer.data.batches import Batch  # noqa: E402
from trainer.loop.device import choose_device  # noqa: E402
from trainer.loop.engine import SingleEngine  # noqa: E402
from trainer.loop.objective import Supervised  # noqa: E402
from trainer.loop.precision import choose_precision, make_precision  # noqa: E402
from trainer.loop.step import train_step  # noqa: E402
from trainer.models.directory import new_model  # noqa: E402
from trainer.models.gemma.configuration import GemmaConfig  # noqa: E402
from trainer.parallel.update_choice import make_updater  # noqa: E402

GEMMA_2B: dict[str, Any] = {
    "vocab_size": 256_000,
    "hidden_size": 2_048,
    "intermediate_size": 16_384,
    "num_hidden_layers": 18,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
}
WARM_UP = 3
RATE = 1e-5


@dataclass(frozen=True)
class Found:
    """What was measured.

    Attributes:
        step_s: median seconds of a step.
        tokens: of a step.
        flops: that a step needs.
        peak: FLOP/s of a large matrix product in the same dtype.
        memory: bytes of tensors at most; 0 on a CPU.
        losses: of all steps.
    """

    step_s: float
    tokens: int
    flops: float
    peak: float
    memory: int
    losses: list[float]

    @property
    def utilization(self) -> float:
        return self.flops / self.step_s / self.peak


def needed_flops(shape: dict[str, Any], rows: int, length: int) -> float:
    """FLOPs of forward and backward, without any recomputation; the embedding's rows are only looked up."""
    hidden, inner, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    heads, groups, width = shape["num_attention_heads"], shape["num_key_value_heads"], shape["head_dim"]
    layer = hidden * width * (2 * heads + 2 * groups) + 3 * hidden * inner
    weights = layers * layer + hidden * shape["vocab_size"]
    tokens = rows * length
    attention = layers * 2 * heads * width * length * tokens / 2
    return 6.0 * (weights * tokens + attention)


def random_batch(shape: dict[str, Any], rows: int, length: int) -> Batch:
    """Rows without padding; every token is learned."""
    drawn = np.random.default_rng(0).integers(3, shape["vocab_size"], (rows, length + 1))
    places = np.broadcast_to(np.arange(length), (rows, length)).copy()
    return Batch(drawn[:, :-1].copy(), drawn[:, 1:].copy(), np.ones((rows, length), np.int64), places)


def measure(shape: dict[str, Any], rows: int, length: int, steps: int, product: int) -> Found:
    """Train on the device that Paddle finds, in bfloat16 where it has a GPU.

    Args:
        product: rows and columns of the matrices that tell the device's peak.
    """
    config = FinetuneConfig(
        model_name_or_path="fresh",
        dataset_name_or_path="none",
        output_dir="none",
        bf16=True,
        fp16_opt_level="O2",
        use_flash_attention=True,
    )
    on_gpu = choose_device(config) == "gpu"
    precision, _ = choose_precision(config, "gpu" if on_gpu else "cpu")
    mixing = make_precision(precision, config)
    model = new_model(GemmaConfig(**shape), dtype=precision.dtype)
    update = make_updater(model, config, mixing)
    engine, objective, batch = (
        SingleEngine(model, mixing.autocast),
        Supervised(),
        random_batch(shape, rows, length),
    )
    model.train()
    seconds, losses = [], []
    for number in range(1, 1 + WARM_UP + steps):
        began = now()
        losses.append(train_step(engine, update, objective, [batch], step=number, rate=RATE).loss)
        seconds.append(now() - began)
    memory = paddle.device.cuda.max_memory_allocated() if on_gpu else 0
    peak = product_rate(product, precision.dtype)
    flops = needed_flops(shape, rows, length)
    return Found(statistics.median(seconds[WARM_UP:]), rows * length, flops, peak, memory, losses)


def product_rate(size: int, dtype: str, times: int = 10) -> float:
    """FLOP/s of products of square matrices: the best of some."""
    left, right = (paddle.randn([size, size]).astype(dtype) for _ in range(2))
    fastest = float("inf")
    for _ in range(times):
        began = now()
        paddle.matmul(left, right)
        fastest = min(fastest, now() - began)
    return 2.0 * size**3 / fastest


def now() -> float:
    """Seconds, when the device has done all it was given."""
    if paddle.device.get_device() != "cpu":
        paddle.device.synchronize()
    return time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    if not (paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count()):
        print("There is no GPU, or this Paddle was not built for one: nothing was measured.")
        return 1
    found = measure(GEMMA_2B, given.rows, given.length, given.steps, product=8192)
    rows = [
        ["tokens per second", f"{found.tokens / found.step_s:.0f}"],
        ["TFLOP/s that the steps need", f"{found.flops / found.step_s / 1e12:.0f}"],
        ["TFLOP/s of a matrix product", f"{found.peak / 1e12:.0f}"],
        ["model FLOPs utilization", f"{found.utilization:.1%}"],
        ["memory of tensors at most", f"{found.memory / 1e9:.1f} GB"],
    ]
    text = f"{given.rows} rows of {given.length} tokens, bfloat16 O2, AdamW, flash attention, median of"
    text += f" {given.steps} steps on {paddle.device.cuda.get_device_name()}.\n\n"
    write_section("Full fine-tuning on a GPU, Gemma 2B", text + table(["", ""], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
