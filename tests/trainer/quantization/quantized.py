"""Tiny models, quantized by rounding; inputs have planted scales."""

from pathlib import Path

from trainer import load_model
from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.models import CausalLM, linear_layers
from trainer.quantization.formats import quantize_rows
from trainer.quantization.model import quantize_model
from trainer.tools.tiny_model import build_tiny_model

#: One scheme of each kind, by a name.
SCHEMES = {
    "a8w8": QuantizationScheme(StoredAs.INT_QUANTIZED, 8, activations=True),
    "int8": QuantizationScheme(StoredAs.PACK_QUANTIZED, 8),
    "int8-plain": QuantizationScheme(StoredAs.INT_QUANTIZED, 8),
    "int4": QuantizationScheme(StoredAs.PACK_QUANTIZED, 4),
    "int4-grouped": QuantizationScheme(StoredAs.PACK_QUANTIZED, 4, 16),
    "gptq4": QuantizationScheme(StoredAs.GPTQ, 4, 32),
    "gptq8": QuantizationScheme(StoredAs.GPTQ, 8),
}
INPUT_SCALE = 4.0 / 127


def tiny(family: str, folder: Path) -> Path:
    """A model directory of two layers of width 64."""
    if not folder.exists():
        build_tiny_model(family, folder, hidden_size=64, num_hidden_layers=2, vocab_size=512)
    return folder


def quantized(source: Path, scheme: QuantizationScheme, skip: tuple[str, ...] = ()) -> CausalLM:
    """The model of a directory, its linear layers quantized except those that end in one of `skip`."""
    model = load_model(source)
    layers = [layer for layer in linear_layers(model) if not layer.path.endswith(skip)]
    weights = {
        layer.path: quantize_rows(layer.layer.weight.t(), scheme.bits, scheme.group_size) for layer in layers
    }
    scales = dict.fromkeys(weights, INPUT_SCALE) if scheme.activations else None
    quantize_model(model, weights, scheme, scales)
    return model
