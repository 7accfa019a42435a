"""What was counted in the data with the tokenizer, and what follows for the batches of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainer.config.estimate.activations import Pass
from trainer.config.schema import PreferenceConfig, RecordsConfig, SftConfig

MOST_RECORDS = 2000
"""Of a split with more records, so many are tokenized, spread evenly over the files."""


@dataclass(frozen=True)
class SplitTokens:
    """Tokens of one split, an epoch long; scaled up where not every record was tokenized.

    Attributes:
        records: of the files.
        sampled: how many of them were tokenized; None: all.
        examples: records that can be learned from.
        tokens, label_tokens: of all examples, without padding.
        longest: tokens of the longest example.
        rows: what batches are made of: an example each, or packs of them.
        batch_tokens: most tokens of a micro-batch (of its longest rows), without padding.
        batch_labels: most tokens of one that are learned.
        padding_share: of a batch, as the config says.
        packed_padding_share: the same if examples were packed (`zero_padding`).
    """

    records: int
    sampled: int | None
    examples: int
    tokens: int
    label_tokens: int
    longest: int
    rows: int
    batch_tokens: int
    batch_labels: int
    padding_share: float
    packed_padding_share: float | None = None

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From what `trainer.token_counts` prints."""
        return cls(**raw)


#: By split.
Counted = Mapping[str, SplitTokens]


def longest_pass(config: RecordsConfig, batch_size: int, split: SplitTokens | None) -> Pass:
    """The largest micro-batch of so many rows: of the data where they were counted, else full rows."""
    length = _row_length(config)
    if split is None:
        return Pass(batch_size, length, batch_size * length)
    longest = min(split.longest, length)
    documents = max(1, -(-split.batch_tokens // max(longest, 1)))
    return Pass(documents, -(-split.batch_tokens // documents), split.batch_labels)


def _row_length(config: RecordsConfig) -> int:
    return config.max_seq_len if isinstance(config, PreferenceConfig) else config.max_length


def is_packed(config: RecordsConfig) -> bool:
    """Whether several examples share a row."""
    return isinstance(config, PreferenceConfig) or (isinstance(config, SftConfig) and config.zero_padding)
