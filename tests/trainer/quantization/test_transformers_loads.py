"""What we quantize, transformers loads on CPU and computes the same; what it saves then, we load.

Needs an interpreter with the oracle extra (REGATTA_ORACLE_PYTHON).
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest

from tests.trainer.quantization.quantized import SCHEMES, quantized, tiny
from trainer import load_model, save_model
from trainer.config.quantized_models import StoredAs
from trainer.models import CausalLM
from trainer.quantization.formats import Integers
from trainer.quantization.layers import QuantizedLinear
from trainer.quantization.model import put_layer, write_scheme

PYTHON = os.environ.get("REGATTA_ORACLE_PYTHON", sys.executable)
IDS = [5, 9, 77, 300, 8, 41]
SCRIPT = """
import json, sys
import torch
from transformers import AutoModelForCausalLM
for folder in sys.argv[2:]:
    model, notes = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    model.save_pretrained(folder + "-again")  # the first pass makes the weights floats
    with torch.no_grad():
        logits = model.eval()(torch.tensor([json.loads(sys.argv[1])])).logits
    strangers = [str(name) for kind in notes.values() for name in kind]
    print("ANSWER " + json.dumps({"logits": logits[0].tolist(), "strangers": strangers}))
"""
GPTQ = [name for name, scheme in SCHEMES.items() if scheme.stored_as is StoredAs.GPTQ]
COMPRESSED = [name for name in SCHEMES if name not in GPTQ]


def require(*packages: str) -> None:
    """Skip without them. They are looked for and not imported, which takes long."""
    code = f"import importlib.util, sys; sys.exit(None in map(importlib.util.find_spec, {packages}))"
    if subprocess.run([PYTHON, "-c", code], timeout=60, capture_output=True).returncode:
        needed = ", ".join(packages)
        pytest.skip(f"needs {needed}; name an interpreter with them in REGATTA_ORACLE_PYTHON")


def environment() -> dict[str, str]:
    """Without compiling, which takes GPTQModel minutes."""
    return {**os.environ, "TORCHDYNAMO_DISABLE": "1"}


def compare(models: dict[Path, CausalLM]) -> None:
    """Save the models; compare with ours the logits of transformers, and those of what it saves."""
    for folder, model in models.items():
        save_model(model, folder)
    command = [PYTHON, "-c", SCRIPT, json.dumps(IDS), *map(str, models)]
    done = subprocess.run(command, timeout=170, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    for (folder, model), answer in zip(models.items(), answers, strict=True):
        theirs = json.loads(answer.removeprefix("ANSWER "))
        assert theirs["strangers"] == []
        with paddle.no_grad():
            ours = model(paddle.to_tensor([IDS]))[0].numpy()
            again = load_model(f"{folder}-again")(paddle.to_tensor([IDS]))[0].numpy()
        assert np.abs(ours - theirs["logits"]).max() <= 1e-3 * np.abs(ours).max(), folder.name
        np.testing.assert_array_equal(again, ours, folder.name)


def with_shuffled_groups(model: CausalLM) -> CausalLM:
    """The same numbers in other groups, as activation order leaves them."""
    generator = np.random.default_rng(2)
    layers = {path: layer for path, layer in model.named_sublayers() if isinstance(layer, QuantizedLinear)}
    scheme = replace(SCHEMES["gptq4"], act_order=True)
    for path, layer in layers.items():
        numbers = layer.integers
        groups = paddle.to_tensor(generator.permutation(numbers.groups().numpy()))
        shuffled = Integers(numbers.values, numbers.scales, numbers.group_size, numbers.bits, groups)
        put_layer(model, path, QuantizedLinear(shuffled, scheme, layer.bias))
    write_scheme(model, scheme)
    return model


@pytest.mark.oracle
@pytest.mark.parametrize("family", ["bloom", "gemma"])
def test_transformers_computes_the_same_with_compressed_tensors(family: str, tmp_path: Path):
    require("torch", "transformers", "compressed_tensors")
    source = tiny(family, tmp_path / "float")
    models = {tmp_path / name: quantized(source, SCHEMES[name]) for name in COMPRESSED}
    models[tmp_path / "some"] = quantized(source, SCHEMES["a8w8"], skip=("dense", "down_proj"))
    compare(models)


@pytest.mark.oracle
@pytest.mark.parametrize("family", ["bloom", "gemma"])
def test_transformers_computes_the_same_with_gptqs_layout(family: str, tmp_path: Path):
    require("torch", "transformers", "optimum", "gptqmodel")
    source = tiny(family, tmp_path / "float")
    models = {tmp_path / name: quantized(source, SCHEMES[name]) for name in GPTQ}
    models[tmp_path / "some"] = quantized(source, SCHEMES["gptq4"], skip=("dense", "down_proj"))
    models[tmp_path / "shuffled"] = with_shuffled_groups(quantized(source, SCHEMES["gptq4"]))
    compare(models)
