"""What we save, transformers loads (needs an interpreter with the oracle extra)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

from trainer import load_model, load_tokenizer, save_model
from trainer.tools.tiny_model import build_tiny_model

PYTHON = os.environ.get("REGATTA_ORACLE_PYTHON", sys.executable)
TEXT = "The harbour wakes at 4:30.\n\n\tÉ 你好 <b>"
SCRIPT = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model, notes = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer(sys.argv[2]).input_ids
with torch.no_grad():
    logits = model(torch.tensor([ids])).logits
print(json.dumps({
    "ids": ids,
    "logits": logits[0].tolist(),
    "dtype": str(model.dtype),
    "strangers": [*map(str, notes["missing_keys"]), *map(str, notes["unexpected_keys"])],
}))
"""


def has_transformers() -> bool:
    command = [PYTHON, "-c", "import torch, transformers"]
    return subprocess.run(command, timeout=120, capture_output=True).returncode == 0


@pytest.mark.oracle
@pytest.mark.parametrize("family", ["bloom", "gemma"])
def test_transformers_loads_a_saved_model_and_tokenizer_and_computes_the_same(family: str, tmp_path: Path):
    if not has_transformers():
        pytest.skip("transformers is not installed; name an interpreter in REGATTA_ORACLE_PYTHON")
    source = build_tiny_model(family, tmp_path / "tiny", hidden_size=48, num_hidden_layers=2, vocab_size=512)
    model, tokenizer = load_model(source), load_tokenizer(source)
    save_model(model, tmp_path / "saved")
    tokenizer.save(tmp_path / "saved")
    command = [PYTHON, "-c", SCRIPT, str(tmp_path / "saved"), TEXT]
    answer = subprocess.run(command, timeout=170, capture_output=True, check=True, text=True)
    theirs = json.loads(answer.stdout.splitlines()[-1])
    assert theirs["strangers"] == []
    assert theirs["dtype"] == "torch.float32"
    assert theirs["ids"] == tokenizer.encode(TEXT)
    ours = model(paddle.to_tensor([theirs["ids"]]))[0].numpy()
    assert np.abs(ours - theirs["logits"]).max() <= 1e-4 * np.abs(ours).max()
