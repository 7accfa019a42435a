"""How text is generated: the choices and their ranges."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trainer.config.problems import ConfigError, Problem


@dataclass(frozen=True)
class GenerateOptions:
    """Names and meanings are those of transformers' `GenerationConfig`.

    Attributes:
        max_new_tokens: longest continuation.
        do_sample: draw each token; otherwise the likeliest one (or the likeliest sequence, with beams).
        temperature: logits are divided by it before drawing.
        top_k: draw among this many likeliest tokens; 0: among all.
        top_p: draw among the likeliest tokens that together have at least this probability.
        repetition_penalty: above 1 makes tokens that are in the text already less likely (Keskar et al.,
            arXiv 1909.05858); padding is no text.
        seed: of the draws. The n-th prompt has draws of its own, so the batch size changes nothing.
        num_beams: sequences that beam search keeps for each prompt; 1: no beam search.
        length_penalty: beam scores are divided by length ** length_penalty; above 0 favours long texts.
        early_stopping: when beam search ends: True with num_beams finished sequences; False when a better one
            is unlikely; "never" when there can be no better one.
        batch_size: prompts that run together; results do not depend on it.
        use_cache: keep keys and values of earlier tokens. Without, every step runs the whole text again: the
            same tokens, slowly.
    """

    max_new_tokens: int = 64
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    batch_size: int = 8
    use_cache: bool = True

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigError: values out of range, or that contradict each other; all at once.
        """
        problems = [*self._out_of_range(), *self._contradictions()]
        if problems:
            raise ConfigError(problems)

    def _out_of_range(self) -> Iterator[Problem]:
        for name, least in (
            ("max_new_tokens", 1),
            ("top_k", 0),
            ("seed", 0),
            ("num_beams", 1),
            ("batch_size", 1),
        ):
            value = getattr(self, name)
            if value < least:
                yield Problem((name,), f"got {value}, expected a whole number of at least {least}")
        for name in ("temperature", "repetition_penalty"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                hint = "For the likeliest token leave sampling off." if name == "temperature" else ""
                yield Problem((name,), f"got {value}, expected a number above 0", hint)
        if not 0 < self.top_p <= 1:
            yield Problem(("top_p",), f"got {self.top_p}, expected a number above 0 and at most 1")
        if not math.isfinite(self.length_penalty):
            yield Problem(("length_penalty",), f"got {self.length_penalty}, expected a number")
        if self.early_stopping not in (True, False, "never"):
            yield Problem(
                ("early_stopping",), f"got {self.early_stopping!r}, expected True, False or 'never'"
            )

    def _contradictions(self) -> Iterator[Problem]:
        if self.do_sample and self.num_beams > 1:
            hint = "Leave one of them out."
            yield Problem(("num_beams",), f"got {self.num_beams} together with do_sample", hint)
        if not self.do_sample:
            for name in ("temperature", "top_k", "top_p"):
                value = getattr(self, name)
                if value != getattr(type(self), name):
                    hint = "Set do_sample, or leave it out."
                    yield Problem((name,), f"got {value}, which only sampling uses", hint)
        if self.num_beams == 1:
            for name in ("length_penalty", "early_stopping"):
                value = getattr(self, name)
                if value != getattr(type(self), name):
                    hint = "Set num_beams above 1, or leave it out."
                    yield Problem((name,), f"got {value}, which only beam search uses", hint)
