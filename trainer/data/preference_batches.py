"""From rows of preference examples to batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.data.batches import Batch
from trainer.data.packing import Pack, pack
from trainer.data.preference import PreferenceExample
from trainer.data.sft import IGNORE

#: One row of a batch.
PreferenceRow = PreferenceExample | Pack[PreferenceExample]


@dataclass(frozen=True)
class PreferenceBatch(Batch):
    """One micro-batch of examples in the layout of `trainer.data.preference`, padded.

    Attributes:
        input_ids: int64 [rows, length].
        labels: int64 [rows, length], the next token at every position of a response, -100 elsewhere.
        documents: int64 [rows, length], 0 = padding, else the number (from 1) of the example in its row.
        position_ids: int64 [rows, length], from 0 in every example; every response goes on where its prompt
            ends.
        branches: int64 [rows, length], 0 = padding or prompt, k = the k-th response of its example.
        responses: int64 [rows, length], the number (from 1, over the whole batch in order) of the response
            that the label belongs to; 0 = none. Example e (from 0) of a dpo batch has 2e + 1 (chosen) and
            2e + 2 (rejected), of a kto batch e + 1.
        response_tokens: int64 [responses], how many labels each response has.
        desirable: bool [examples], how each was judged; None for dpo.
        mismatched: the mismatched examples (kto), in the same order and in rows of their own.
    """

    branches: np.ndarray
    responses: np.ndarray
    response_tokens: np.ndarray
    desirable: np.ndarray | None
    mismatched: PreferenceBatch | None


@dataclass(frozen=True)
class PreferenceCollator:
    """Pads rows to one rectangle.

    `side` is where the padding goes ("left" or "right"). `length` fixes the width; without it the width is
    the longest row's.
    """

    pad_id: int
    side: str
    length: int | None = None

    def __call__(self, rows: Sequence[PreferenceRow]) -> PreferenceBatch:
        examples = [part for row in rows for part in row.parts]
        others = [example.mismatched for example in examples if example.mismatched is not None]
        judged = [example.desirable for example in examples if example.desirable is not None]
        return self._padded(
            rows,
            desirable=np.array(judged, dtype=bool) if judged else None,
            mismatched=self._mismatched(rows, others) if others else None,
        )

    def _mismatched(
        self, rows: Sequence[PreferenceRow], others: Sequence[PreferenceExample]
    ) -> PreferenceBatch:
        """The mismatched examples; their lengths are not those of the rows, so they are packed anew."""
        longest = max(example.length for example in [*rows, *others])
        packed = list(pack(others, max(longest, self.length or 0), greedy=False))
        return self._padded(packed, desirable=None, mismatched=None)

    def _padded(
        self,
        rows: Sequence[PreferenceRow],
        desirable: np.ndarray | None,
        mismatched: PreferenceBatch | None,
    ) -> PreferenceBatch:
        width = max(max(row.length for row in rows), self.length or 0)
        shape = (len(rows), width)
        tokens = [response.length for row in rows for part in row.parts for response in part.responses]
        batch = PreferenceBatch(
            input_ids=np.full(shape, self.pad_id, dtype=np.int64),
            labels=np.full(shape, IGNORE, dtype=np.int64),
            documents=np.zeros(shape, dtype=np.int64),
            position_ids=np.zeros(shape, dtype=np.int64),
            branches=np.zeros(shape, dtype=np.int64),
            responses=np.zeros(shape, dtype=np.int64),
            response_tokens=np.array(tokens, dtype=np.int64),
            desirable=desirable,
            mismatched=mismatched,
        )
        response_number = 0
        for number, row in enumerate(rows):
            start = width - row.length if self.side == "left" else 0
            for document, part in enumerate(row.parts, start=1):
                batch.documents[number, start : start + part.length] = document
                prompt = len(part.prompt)
                place = number, slice(start, start + prompt)
                batch.input_ids[place] = part.prompt
                batch.position_ids[place] = np.arange(prompt)
                start += prompt
                for branch, response in enumerate(part.responses, start=1):
                    response_number += 1
                    place = number, slice(start, start + response.length)
                    batch.input_ids[place] = response.input_ids
                    batch.labels[place] = response.labels
                    batch.position_ids[place] = np.arange(prompt, prompt + response.length)
                    batch.branches[place] = branch
                    batch.responses[place] = response_number
                    start += response.length
        return batch
