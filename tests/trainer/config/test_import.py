import subprocess
import sys

PROGRAM = """
import sys
import trainer.config, trainer.config.preflight
heavy = {"paddle", "numpy", "tokenizers", "sentencepiece", "torch"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""


def test_importing_the_schemas_imports_neither_paddle_nor_arrays() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
