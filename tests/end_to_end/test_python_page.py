"""The first example of the page, of the training library, runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_example_runs(model: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny-gemma").symlink_to(model)
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    check = "\nassert logits.shape == [1, len(ids), tokenizer.vocab_size], logits.shape\n"
    done = subprocess.run(
        [sys.executable, "-c", code + check], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    copied, original = (path / "model.safetensors" for path in (tmp_path / "copy-of-tiny-gemma", model))
    assert copied.read_bytes() == original.read_bytes()
