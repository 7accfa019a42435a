"""A model with a broken number is told of, by the name of its tensor."""

from pathlib import Path

import numpy as np
import pytest

from trainer import load_model
from trainer.config.problems import DataError
from trainer.models.finite import refuse_broken_weights

NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_tensor_with_one_broken_number_is_named(tiny_gemma: Path, value: float) -> None:
    model = load_model(tiny_gemma)
    parameter = model.parameter_names()[NAME].parameter
    broken = parameter.numpy()
    broken[0, 0] = value
    parameter.set_value(broken)
    with pytest.raises(DataError, match=f"{NAME}.* infinite or NaN") as refusal:
        refuse_broken_weights(model, tiny_gemma)
    assert [problem.loc[-1] for problem in refusal.value.problems] == [NAME]


def test_a_sound_model_passes(tiny_gemma: Path) -> None:
    refuse_broken_weights(load_model(tiny_gemma), tiny_gemma)
