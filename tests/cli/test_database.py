"""Parts of the service that need a database say what is wrong with it before they start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("part", ["worker", "scheduler"])
def test_a_database_that_was_never_migrated_is_refused_with_the_remedy(part: str, tmp_path: Path) -> None:
    environment = os.environ | {"REGATTA_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "cli", part], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "run `regatta migrate`" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
