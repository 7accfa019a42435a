"""A model as a static graph that Paddle's inference library runs: ids of any size in, logits out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as functional
from paddle import Tensor, nn

from trainer import load_tokenizer
from trainer.config.problems import TrainingError
from trainer.files import refuse_cut_off, write_json
from trainer.models import CausalLM, load_model
from trainer.models.finite import refuse_broken_weights
from trainer.quantization.layers import QuantizedLinear
from trainer.tools.export_forward import exportable

#: The files are `model.json` and `model.pdiparams`.
GRAPH = "model"
FACTS_FILE = "export.json"
#: Sizes `[batch, sequence]` that the graph is tried with.
_TRIED = ((1, 5), (3, 17))
#: Logits may differ by this share of the largest one.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Exported:
    """What an export did.

    Attributes:
        bytes: size of the graph's files.
        max_difference: the largest difference of the graph's logits to the model's, relative to the largest
            logit.
        dequantized_layers: linear layers whose whole numbers became float32 again.
    """

    bytes: int
    max_difference: float
    dequantized_layers: int


def export_model(folder: Path, output: Path) -> Exported:
    """Trace a model in float32, save the graph with the tokenizer, load it again and run it.

    Weights of quantized layers are float32 in the graph, and inputs of layers are not rounded.

    Args:
        folder: of a whole model.
        output: folder of the result; files of the same names are replaced.

    Raises:
        DataError: the model cannot be used.
        WriteError: the output cannot be written.
        TrainingError: the graph gives other logits than the model.
    """
    model = load_model(folder, options={"fuse_attention_qkv": False, "fuse_attention_ffn": False})
    dequantized = dequantize(model)
    refuse_broken_weights(model, folder)
    model.eval()
    layer = exportable(model)
    layer.eval()
    ids = paddle.static.InputSpec([None, None], "int64", name="input_ids")
    output.mkdir(parents=True, exist_ok=True)
    load_tokenizer(folder).save(output)
    paddle.jit.save(paddle.jit.to_static(layer, input_spec=[ids], full_graph=True), str(output / GRAPH))
    weights = sum(parameter.size * parameter.element_size() for parameter in model.parameters())
    refuse_cut_off(output / f"{GRAPH}.pdiparams", weights)
    difference = _difference(model, output)
    if not difference <= TOLERANCE:
        msg = f"the graph's logits differ from the model's by {difference:.3g} of the largest one, "
        raise TrainingError(f"{msg}expected at most {TOLERANCE:g}")
    files = sorted(output.glob(f"{GRAPH}.*"))
    facts = {
        "graph": GRAPH,
        "inputs": {"input_ids": ["int64", "batch", "sequence"]},
        "outputs": {"logits": ["float32", "batch", "sequence", model.config.vocab_size]},
        "model_type": model.config.model_type,
        "max_difference": difference,
        "dequantized_layers": dequantized,
    }
    write_json(output / FACTS_FILE, facts)
    return Exported(sum(path.stat().st_size for path in files), difference, dequantized)


def dequantize(model: CausalLM) -> int:
    """Put plain float32 layers in the places of quantized ones; returns how many there were."""
    found = [(path, layer) for path, layer in model.named_sublayers() if isinstance(layer, QuantizedLinear)]
    owners = dict(model.named_sublayers())
    for path, layer in found:
        owner, _, name = path.rpartition(".")
        setattr(owners[owner], name, _Plain(layer))
    return len(found)


class _Plain(nn.Layer):
    """A linear layer with the weights that the numbers of a quantized one stand for."""

    def __init__(self, quantized: QuantizedLinear) -> None:
        super().__init__()
        weight = quantized.integers.dequantize().t()
        self.weight = self.create_parameter(weight.shape, dtype="float32")
        self.weight.set_value(weight)
        self.bias = quantized.bias

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


@paddle.no_grad()
def _difference(model: CausalLM, output: Path) -> float:
    graph = paddle.jit.load(str(output / GRAPH))
    graph.eval()
    random, worst = np.random.default_rng(0), 0.0
    for shape in _TRIED:
        ids = paddle.to_tensor(random.integers(0, model.config.vocab_size, shape))
        wanted, found = model(ids), graph(ids)
        worst = max(worst, float((found - wanted).abs().max() / wanted.abs().max().clip(min=1e-30)))
    return worst
