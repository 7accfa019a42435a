"""The result files of a run: ``train_results.json``, ``eval_results.json``, ``all_results.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer.events import finite
from trainer.files import write_json


def write_results(directory: Path, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Write ``<name>_results.json`` for each entry and ``all_results.json`` with all of them; returns the
    latter.
    """
    merged: dict[str, Any] = {}
    for name, metrics in results.items():
        write_json(directory / f"{name}_results.json", finite(metrics))
        merged |= metrics
    write_json(directory / "all_results.json", finite(merged))
    return merged
