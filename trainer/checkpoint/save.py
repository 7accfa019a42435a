"""Reading one checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.checkpoint.find import STATE_FILE
from trainer.config.problems import DataError


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The content of a checkpoint's ``trainer_state.json``.

    Raises:
        DataError: it is missing or not a JSON object.
    """
    path = checkpoint / STATE_FILE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise DataError(f"{path} is not a JSON object")
    return state
