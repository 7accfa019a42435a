import subprocess
import sys


def test_importing_trainer_does_not_import_paddle():
    script = "import sys, trainer; sys.exit('paddle' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_a_tokenizer_loads_without_paddle():
    script = "import sys, trainer.tokenizers; sys.exit('paddle' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
