"""Models with broken numbers, told before anything is made of them."""

from __future__ import annotations

from pathlib import Path

import paddle

from trainer.config.problems import DataError, Problem
from trainer.models.base import CausalLM


@paddle.no_grad()
def refuse_broken_weights(model: CausalLM, directory: Path) -> None:
    """Look at every number of a model that was loaded from `directory`.

    Raises:
        DataError: some are infinite or NaN; it names their tensors.
    """
    weights = model.parameter_names()
    broken = [name for name, weight in weights.items() if not _is_finite(weight.parameter)]
    if broken:
        hint = "Use weights from before they broke, such as an earlier checkpoint."
        raise DataError(
            [Problem((str(directory), name), "has numbers that are infinite or NaN", hint) for name in broken]
        )


def _is_finite(parameter: paddle.Tensor) -> bool:
    return bool(paddle.isfinite(parameter.astype("float32")).all())
