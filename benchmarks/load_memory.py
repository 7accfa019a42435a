"""How much memory loading a checkpoint takes, beside the size of the checkpoint.

Writes a random Gemma of about the wanted size with the proportions of the published 2b (a large embedding,
wide MLPs), then loads it in fresh processes. Measured there: the peak resident memory of the process (VmHWM)
while `load_model` runs, minus its resident memory before, when Paddle is imported and nothing is loaded;
divided by the size of the weight files. Files are read, not mapped, so their pages count as the kernel's
cache and not as the process's memory.

    python benchmarks/load_memory.py [--gigabytes 2]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks.results import table, write_section  # noqa: E402
from trainer.models.safetensors_file import TensorHeader, write_safetensors  # noqa: E402

VOCABULARY, HIDDEN, INNER, HEADS, HEAD_DIM = 64_000, 2_048, 16_384, 8, 256
LIMIT = 1.3

LOAD = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from trainer.ops.host import import_paddle
import_paddle()
from trainer import models

def memory(field):
    line = next(x for x in open("/proc/self/status") if x.startswith(field))
    return int(line.split()[1]) * 1024

before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
began = time.perf_counter()
model = models.load_model(sys.argv[1], sys.argv[2])
seconds = time.perf_counter() - began
print(json.dumps({"before": before, "peak": memory("VmHWM"), "after": memory("VmRSS"), "seconds": seconds}))
"""


def shapes(layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(layers):
        owner = f"model.layers.{layer}."
        yield owner + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield owner + "self_attn.k_proj.weight", (HEAD_DIM, HIDDEN)
        yield owner + "self_attn.v_proj.weight", (HEAD_DIM, HIDDEN)
        yield owner + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield owner + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield owner + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield owner + "mlp.down_proj.weight", (HIDDEN, INNER)
        yield owner + "input_layernorm.weight", (HIDDEN,)
        yield owner + "post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)


def write_checkpoint(directory: Path, size: float, stored: str, form: str) -> int:
    """A checkpoint of about `size` bytes; returns the bytes of its weight file."""
    headers: dict[str, TensorHeader] = {}
    layers = 0
    while sum(header.bytes for header in headers.values()) < size:
        layers += 1
        headers = {name: TensorHeader(stored, shape) for name, shape in shapes(layers)}
    if form == "np":
        turned = {n: TensorHeader(stored, h.shape[::-1]) if "_proj" in n else h for n, h in headers.items()}
        headers = {name.replace("model.", "gemma.", 1): header for name, header in turned.items()}
    config = {
        "model_type": "gemma",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "head_dim": HEAD_DIM,
    }
    (directory / "config.json").write_text(json.dumps(config))
    generator = np.random.default_rng(0)

    def draw(name: str) -> np.ndarray:
        values = generator.standard_normal(headers[name].shape, dtype=np.float32)
        return values if stored == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16)

    write_safetensors(directory / "model.safetensors", headers, draw, {"format": form})
    return sum(header.bytes for header in headers.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0)
    gigabytes = parser.parse_args().gigabytes
    worst, rows = 0.0, []
    for stored, dtype, form in (
        ("F32", "float32", "pt"),
        ("BF16", "bfloat16", "pt"),
        ("F32", "float32", "np"),
    ):
        with tempfile.TemporaryDirectory() as temporary:
            size = write_checkpoint(Path(temporary), gigabytes * 1e9, stored, form)
            command = [sys.executable, "-c", LOAD, temporary, dtype, str(ROOT)]
            answer = subprocess.run(command, check=True, timeout=600, capture_output=True, text=True)
        found = json.loads(answer.stdout.splitlines()[-1])
        ratio = (found["peak"] - found["before"]) / size
        worst = max(worst, ratio)
        layout = "Hugging Face" if form == "pt" else "PaddleNLP"
        sizes = (f"{value / 1e9:.2f} GB" for value in (size, found["before"], found["peak"]))
        name = f"{layout} layout, {stored} into {dtype}"
        rows.append([name, *sizes, f"{ratio:.2f}", f"{found['seconds']:.1f} s"])
    about = (
        "Resident memory of a process that loads a Gemma: its peak above its start, over the size of the"
        f" weight file; limit {LIMIT}.\n\n"
    )
    heads = ["", "on disk", "start", "peak", "ratio", "time"]
    write_section("Memory to load a checkpoint", about + table(heads, rows))
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
