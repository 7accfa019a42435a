"""What a saved LoRA adapter adds to the matrices of its base model, without any model in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainer.config.adapters import ADAPTER_WEIGHTS, LoraSettings
from trainer.config.problems import DataError, Problem
from trainer.peft.files import open_tensors
from trainer.peft.lora.adapter import MATRIX_A, MATRIX_B, PATH_PREFIX, adapted_path


class LoraDeltas:
    """The products s B A of a saved adapter, `[out, in]` like the matrices on disk, one at a time.

    Attributes:
        paths: of the adapted layers.
    """

    def __init__(self, settings: LoraSettings, directory: Path) -> None:
        """Open an adapter.

        Raises:
            DataError: its file holds anything but pairs of matrices that fit together.
        """
        self._settings = settings
        self._file = open_tensors(directory / ADAPTER_WEIGHTS)
        self.paths = sorted({path for name in self._file.headers if (path := adapted_path(name))})
        problems = [problem for name in self._file.headers for problem in self._stranger(name)]
        problems += [problem for path in self.paths for problem in self._misfit(path)]
        if problems:
            raise DataError(problems)

    def shape(self, path: str) -> tuple[int, int]:
        """Outputs and inputs of an adapted layer."""
        a, b = self._names(path)
        return self._file.headers[b].shape[0], self._file.headers[a].shape[1]

    def delta(self, path: str) -> np.ndarray:
        """s B A of one layer, float32."""
        a, b = (self._file.read(name).astype(np.float32) for name in self._names(path))
        return (b * np.float32(self._settings.scale)) @ a

    def _names(self, path: str) -> tuple[str, str]:
        return f"{PATH_PREFIX}{path}{MATRIX_A}", f"{PATH_PREFIX}{path}{MATRIX_B}"

    def _stranger(self, name: str) -> list[Problem]:
        if adapted_path(name):
            return []
        hint = "Merge the adapter with the tool that made it."
        return [Problem((str(self._file.path), name), "is no LoRA matrix of a linear layer", hint)]

    def _misfit(self, path: str) -> list[Problem]:
        rank, headers = self._settings.rank, self._file.headers
        a, b = (headers[name].shape if name in headers else None for name in self._names(path))
        if a and b and len(a) == len(b) == 2 and a[0] == b[1] == rank:
            return []
        msg = f"got A {a} and B {b}, expected [{rank}, in] and [out, {rank}]"
        return [Problem((str(self._file.path), path), msg, "Copy the adapter again.")]
