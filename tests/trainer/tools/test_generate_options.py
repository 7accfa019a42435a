from typing import Any

import pytest

from trainer.config.problems import ConfigError
from trainer.tools.generate_options import GenerateOptions

SAMPLING = {"do_sample": True}
BEAMS = {"num_beams": 2}


def problems(**options: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        GenerateOptions(**options)
    return {str(problem.loc[0]): problem.msg for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("others", "name", "value"),
    [
        ({}, "max_new_tokens", 0),
        ({}, "seed", -1),
        ({}, "batch_size", 0),
        ({}, "num_beams", 0),
        ({}, "repetition_penalty", 0.0),
        ({}, "repetition_penalty", float("inf")),
        (SAMPLING, "temperature", 0.0),
        (SAMPLING, "temperature", float("nan")),
        (SAMPLING, "top_k", -1),
        (SAMPLING, "top_p", 0.0),
        (SAMPLING, "top_p", 1.5),
        (BEAMS, "length_penalty", float("nan")),
        (BEAMS, "early_stopping", "always"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(others: dict[str, Any], name: str, value: Any):
    found = problems(**others, **{name: value})
    assert found.keys() == {name}
    assert found[name].startswith(f"got {value!r}, expected")


def test_all_problems_are_said_at_once():
    assert problems(max_new_tokens=-1, top_p=7, batch_size=0).keys() == {
        "max_new_tokens",
        "top_p",
        "batch_size",
    }


def test_options_without_their_way_are_refused():
    assert "only sampling" in problems(temperature=0.5)["temperature"]
    assert "only beam search" in problems(early_stopping=True)["early_stopping"]
    assert "together with do_sample" in problems(do_sample=True, num_beams=2)["num_beams"]
