"""How much memory and time quantizing a model takes beside the float model, by its number of layers.

Quantizes Gemmas of 2, 4 and 8 decoder layers (fresh weights, float32) by GPTQ, and by PTQ with smoothing, on
the same random tokens. Each case runs in a fresh process. Measured there: the peak resident memory (VmHWM)
while it is quantized, minus the resident memory before, when the float model is there and a tiny model has
been quantized, so that libraries have what they keep. Time is that of the processors.

The peak must not be above the counted work of one decoder layer, which is

* activations: the hidden states of all calibration tokens before the layer, and all inputs and outputs of its
  modules for one batch;
* inputs of its linear layers: GPTQ has a Hessian of each in float64, and of the largest the factor of its
  inverse, and one batch in float64; PTQ has a sample of tokens of each, as it comes and smoothed, with the
  outputs that it should have;
* weights: the 8-bit results of the whole layer, and of its largest linear layer a copy with outputs as rows
  and, in GPTQ, another one in float64.

The peak must not grow with the layers, and the time no more than they do.

    python benchmarks/quantize_memory.py [--hidden 256] [--inner 1024]
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from trainer.ops.host import import_paddle  # noqa: E402

import_paddle(keep_freed_memory=False)

import numpy as np  # noqa: E402
import paddle  # noqa: E402

from benchmarks.results import table, write_section  # noqa: E402
from trainer.models.base import CausalLM  # noqa: E402
from trainer.models.directory import new_model  # noqa: E402
from trainer.models.gemma.configuration import GemmaConfig  # noqa: E402
from trainer.models.passes import MetricsPass, Pass  # noqa: E402
from trainer.ops.packing import Packing  # noqa: E402
from trainer.quantization.inputs import SAMPLE_TOKENS  # noqa: E402
from trainer.quantization.methods import Progress, quantize_gptq, quantize_ptq  # noqa: E402
from trainer.quantization.report import QuantizationReport  # noqa: E402
from trainer.quantization.settings import GptqSettings, PtqSettings, SmoothSettings  # noqa: E402

METHODS = {"gptq": "GPTQ", "ptq": "PTQ, smoothed"}
LAYERS = (2, 4, 8)
VOCABULARY, HEAD_DIM = 1_000, 64
BATCHES, TOKENS = 4, 512
#: Of the largest and the smallest time of a layer, by the number of layers.
TIME_LIMIT = 1.5
#: Of the peak with the most layers and that with the fewest. The same case differs by a tenth between runs.
PEAK_LIMIT = 1.2


def config_of(layers: int, hidden: int, inner: int) -> GemmaConfig:
    heads = hidden // HEAD_DIM
    return GemmaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=HEAD_DIM,
    )


def calibration(batches: int, tokens: int) -> list[Pass]:
    draws = np.random.default_rng(0)
    found = []
    for _ in range(batches):
        ids = paddle.to_tensor(draws.integers(3, VOCABULARY, (1, tokens)))
        packing = Packing.of(ids, None, None)
        packed = packing.pack(ids)
        found.append(MetricsPass(packed, packing, packed))
    return found


def begin(method: str, model: CausalLM, batches: Sequence[Pass]) -> Iterator[Progress]:
    report = QuantizationReport()
    if method == "gptq":
        return quantize_gptq(model, batches, GptqSettings(), report)
    return quantize_ptq(model, batches, PtqSettings(smooth=SmoothSettings(all_linears=True)), report)


def counted(method: str, hidden: int, inner: int) -> dict[str, float]:
    """Bytes of the work of one layer, by what they are for."""
    inputs = (hidden, hidden, hidden, inner)
    largest, all_weights = hidden * inner, 4 * hidden**2 + 3 * hidden * inner
    # Of a token: the layer's input, two norms, q, k and v as they are and rotated, the attention's result and
    # its projection, two sums; gate, up, the activation and the product.
    modules = 4 * TOKENS * (12 * hidden + 4 * inner)
    activations = 4 * BATCHES * TOKENS * hidden + modules
    if method == "gptq":
        matrices = sum(size**2 for size in inputs) + max(inputs) ** 2
        of_inputs, copies = 8 * (matrices + TOKENS * max(inputs)), (4 + 8) * largest
    else:
        outputs = max(3 * hidden, 2 * inner)
        of_inputs, copies = 4 * SAMPLE_TOKENS * (2 * sum(inputs) + outputs), 4 * largest
    return {"activations": activations, "inputs": of_inputs, "weights": copies + all_weights}


def memory(field: str) -> int:
    """A field of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def measure(method: str, layers: int, hidden: int, inner: int) -> dict[str, float]:
    """Quantize a model in this process."""
    for _ in begin(method, new_model(config_of(1, HEAD_DIM, HEAD_DIM)), calibration(1, TOKENS)):
        pass
    model, batches = new_model(config_of(layers, hidden, inner)), calibration(BATCHES, TOKENS)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    began = time.process_time()
    for _ in begin(method, model, batches):
        pass
    return {"bytes": memory("VmHWM") - before, "seconds": time.process_time() - began}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=256, help=f"a multiple of {HEAD_DIM}")
    parser.add_argument("--inner", type=int, default=1_024)
    parser.add_argument("--method", choices=list(METHODS), help="measure this one alone, in this process")
    parser.add_argument("--layers", type=int, default=LAYERS[0], help="with --method")
    options = parser.parse_args()
    sizes = options.hidden, options.inner
    if options.method:
        print(json.dumps(measure(options.method, options.layers, *sizes)))
        return 0
    kept, rows, summary = True, [], []
    for method, name in METHODS.items():
        limit = sum(counted(method, *sizes).values())
        peaks, times = [], []
        for layers in LAYERS:
            command = [sys.executable, __file__, *sys.argv[1:], "--method", method, "--layers", str(layers)]
            answer = subprocess.run(command, check=True, timeout=300, stdout=subprocess.PIPE, text=True)
            found = json.loads(answer.stdout.splitlines()[-1])
            peaks.append(found["bytes"])
            times.append(found["seconds"] / layers)
            peak, ratio = f"{found['bytes'] / 1e6:.0f} MB", f"{found['bytes'] / limit:.2f}"
            rows.append(
                [f"{name}, {layers} layers", peak, ratio, f"{found['seconds']:.1f} s", f"{times[-1]:.2f} s"]
            )
        growth, drift = peaks[-1] / peaks[0], max(times) / min(times)
        parts = (f"{size / 1e6:.0f} MB" for size in counted(method, *sizes).values())
        summary.append([name, *parts, f"{limit / 1e6:.0f} MB", f"{growth:.2f}", f"{drift:.2f}"])
        kept = kept and max(peaks) <= limit and growth <= PEAK_LIMIT and drift <= TIME_LIMIT
    about = (
        f"Peak above the float model, over the work counted for one layer; hidden size {sizes[0]}, inner size"
        f" {sizes[1]}, {BATCHES} batches of {TOKENS} tokens. Limits: ratio 1; growth of the peak from the"
        f" fewest to the most layers {PEAK_LIMIT}; drift of the time, longest of a layer over shortest,"
        f" {TIME_LIMIT}.\n\n"
    )
    of_cases = table(["", "peak", "ratio", "processor time", "of a layer"], rows)
    heads = ["counted", "activations", "inputs", "weights", "in all", "growth", "drift"]
    of_methods = table(heads, summary)
    write_section("Memory of quantizing", f"{about}{of_cases}\n{of_methods}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
