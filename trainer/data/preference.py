"""Examples of preference training: one prompt with its judged responses, ready to be put into one sequence.

An example is laid out with its prompt once, for all its responses (shared prompt):

    p_1 .. p_(n-1)   p_n y_1 .. y_m   p_n z_1 .. z_k

Each response is a segment that begins with the last prompt token, so that its labels are ``y_1 .. y_m EOS``:
every position of a segment has a label, no position of the prompt has one. Segments see the prompt and
themselves, never each other; each goes on with the positions where the prompt ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Response:
    """A response behind its prompt.

    Attributes:
        input_ids: int32 [length], the last prompt token, then the response up to its last but one token.
        labels: int32 [length], the token that follows each input; all of them count.
        cut: it did not fit, so it ends without EOS.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    cut: bool

    @classmethod
    def of(cls, last_prompt_token: int, ids: Sequence[int] | np.ndarray, room: int) -> Response:
        """The response with these ids, its EOS among them, behind a prompt; cut to `room` positions."""
        labels = np.asarray(ids[:room], dtype=np.int32)
        inputs = np.concatenate([np.asarray([last_prompt_token], dtype=np.int32), labels[:-1]])
        return cls(inputs, labels, cut=len(ids) > room)

    @property
    def length(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class PreferenceExample:
    """One prompt with its responses.

    Attributes:
        prompt: int32 [prompt tokens - 1]; the last prompt token begins each response.
        responses: chosen and rejected (dpo), or the one response that was judged (kto).
        desirable: how that one was judged; None for dpo.
        mismatched: the same prompt with the response of another record (kto, for its KL term).
        lost_turns: earlier turns left out because they did not fit.
        prompt_cut: tokens that the prompt lost at its front.
    """

    prompt: np.ndarray
    responses: tuple[Response, ...]
    desirable: bool | None = None
    mismatched: PreferenceExample | None = None
    lost_turns: int = 0
    prompt_cut: int = 0

    @property
    def parts(self) -> tuple[PreferenceExample, ...]:
        """The examples in a row of this one alone."""
        return (self,)

    @property
    def length(self) -> int:
        """Positions that it takes in a sequence; the mismatched one is not counted."""
        return len(self.prompt) + self.label_tokens

    @property
    def label_tokens(self) -> int:
        return sum(response.length for response in self.responses)

    @property
    def cut(self) -> bool:
        """Whether a response was cut."""
        return any(response.cut for response in self.responses)
