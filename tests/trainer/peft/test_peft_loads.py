"""What we save, PEFT loads and computes the same (needs an interpreter with the oracle extra)."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest

import trainer
from trainer import load_model
from trainer.config.adapters import LoraSettings
from trainer.peft.lora.adapter import add_lora
from trainer.peft.prefix.adapter import add_prefix
from trainer.tools.merge import merge_adapter

from .conftest import BASES
from .test_lora import disturb

PYTHON = os.environ.get("REGATTA_ORACLE_PYTHON", sys.executable)
IDS = [5, 9, 23, 31, 8, 44, 17]
SCRIPT = """
import json, sys, warnings
import torch
from peft import AutoPeftModelForCausalLM
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = AutoPeftModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="eager").float().eval()
with torch.no_grad():
    logits = model(input_ids=torch.tensor([json.loads(sys.argv[2])])).logits[0]
missing = [str(w.message) for w in caught if "missing" in str(w.message)]
print(json.dumps({"logits": logits.tolist(), "missing": missing}))
"""

pytestmark = pytest.mark.oracle


def pefts_logits(adapter: Path) -> np.ndarray:
    found = subprocess.run(
        [PYTHON, "-c", "import torch, peft"], timeout=120, capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip("peft is not installed; name an interpreter in REGATTA_ORACLE_PYTHON")
    command = [PYTHON, "-c", SCRIPT, str(adapter), json.dumps(IDS)]
    done = subprocess.run(command, timeout=170, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["missing"] == []
    return np.array(answer["logits"])


@pytest.mark.parametrize("family", ["gemma", "bloom"])
@pytest.mark.parametrize("rslora", [False, True])
def test_peft_and_the_merged_model_compute_what_our_adapter_does(
    family: str, rslora: bool, tmp_path: Path
) -> None:
    model = load_model(BASES[family])
    targets = () if rslora else ("layers.0.mlp.down_proj", "q_proj") if family == "gemma" else ("dense",)
    settings = LoraSettings(8, 16, rslora=rslora, targets=targets, base=str(BASES[family]))
    disturb(add_lora(model, settings))
    trainer.save_model(model, tmp_path / "adapter")
    ours = model(paddle.to_tensor([IDS]))[0].numpy()
    np.testing.assert_allclose(pefts_logits(tmp_path / "adapter"), ours, atol=1e-4)
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    merged = load_model(tmp_path / "merged")(paddle.to_tensor([IDS]))[0].numpy()
    np.testing.assert_allclose(merged, ours, atol=2e-5)


@pytest.mark.parametrize("family", ["gemma", "bloom"])
@pytest.mark.parametrize("projection", [None, 12])
def test_peft_computes_what_our_prefix_does(family: str, projection: int | None, tmp_path: Path) -> None:
    model = load_model(BASES[family])
    adapter = add_prefix(model, 6, projection, base=str(BASES[family]))
    adapter.encoder.draw(1, 0.5)
    trainer.save_model(model, tmp_path)
    ours = model(paddle.to_tensor([IDS]))[0].numpy()
    np.testing.assert_allclose(pefts_logits(tmp_path), ours, atol=1e-4)


def test_peft_reads_the_revision_of_a_hub_name(tmp_path: Path) -> None:
    settings = replace(LoraSettings(2, 4), base="google/gemma-2b@abc123")
    written = settings.to_dict()
    assert (written["base_model_name_or_path"], written["revision"]) == ("google/gemma-2b", "abc123")
    assert LoraSettings.from_dict(written, tmp_path).base == settings.base
