import subprocess
import sys
from pathlib import Path


def test_importing_trainer_does_not_import_paddle():
    script = "import sys, trainer; sys.exit('paddle' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_a_tokenizer_loads_without_paddle():
    script = "import sys, trainer.tokenizers; sys.exit('paddle' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_loading_a_model_prepares_the_process_and_prints_nothing(tmp_path: Path):
    script = """
import os, sys, trainer
from trainer.tools.generate import generate
from trainer.tools.tiny_model import build_tiny_model
directory = build_tiny_model("gemma", sys.argv[1], hidden_size=16, vocab_size=400)
generate(trainer.load_model(directory), trainer.load_tokenizer(directory), ["a"], 2)
sys.exit("FLAGS_use_stride_kernel" not in os.environ)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    answer = subprocess.run(command, timeout=120, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
