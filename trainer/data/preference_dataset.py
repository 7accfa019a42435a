"""The splits of preference data: what became of their records, and what KTO compares them with.

KTO estimates how far the policy has moved from the reference with responses that do not belong to their
prompts (arXiv 2402.01306, section 4): each prompt also gets the response of the next record in the file whose
prompt is another one; after the last record comes the first. Only where all prompts are the same is it simply
the next record's.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainer.config.data_files import PREFERENCE_FILES as FIELDS
from trainer.config.preference_records import one_judgement
from trainer.config.problems import DataError, Problem
from trainer.data.dataset import named_records
from trainer.data.special_texts import special_text_warning

if TYPE_CHECKING:
    from trainer.config.preference_records import PreferenceRecord
    from trainer.data.preference import PreferenceExample
    from trainer.data.preference_encoding import EncodedRecord, PreferenceEncoder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreferenceSplit:
    """The examples of one split and what became of its records.

    Attributes:
        name: "train" or "dev".
        records: those that became `examples`, in file order.
        examples: what can be trained on.
        dropped: where the records left out lie and why.
        cut: examples with a response that was cut, so that it ends without EOS.
        shortened: examples that lost earlier turns.
        prompts_cut: examples whose last turn lost its front.
    """

    name: str
    records: tuple[PreferenceRecord, ...]
    examples: tuple[PreferenceExample, ...]
    dropped: tuple[str, ...]
    cut: int
    shortened: int
    prompts_cut: int

    @property
    def tokens(self) -> int:
        return sum(example.length for example in self.examples)

    @property
    def label_tokens(self) -> int:
        return sum(example.label_tokens for example in self.examples)

    def fingerprint(self) -> str:
        """A short text that is the same only for the same examples in the same order."""
        digest = hashlib.blake2b(digest_size=16)
        for example in self.examples:
            _add(digest, example)
        return f"{len(self.examples)} examples, {digest.hexdigest()}"


def encode_preference_split(
    name: str, records: Iterable[PreferenceRecord], encoder: PreferenceEncoder
) -> PreferenceSplit:
    """Encode all records of a split.

    Raises:
        DataError: the chat template refuses a record, the split has no record, none of them has anything to
            learn, or it is KTO data and only one has.
    """
    kept: list[PreferenceRecord] = []
    encoded: list[EncodedRecord] = []
    dropped: list[str] = []
    for record in records:
        ids = encoded_record(name, record, encoder)
        if why := encoder.why_left_out(ids):
            dropped.append(f"{record.location} ({why})")
        else:
            kept.append(record)
            encoded.append(ids)
    refuse_nothing_to_learn(name, len(kept), len(dropped), dropped)
    examples = tuple(examples_of(name, encoded, encoder))
    split = PreferenceSplit(
        name=name,
        records=tuple(kept),
        examples=examples,
        dropped=tuple(dropped),
        cut=sum(example.cut for example in examples),
        shortened=sum(example.lost_turns > 0 for example in examples),
        prompts_cut=sum(example.prompt_cut > 0 for example in examples),
    )
    counts = len(examples), split.tokens, split.label_tokens
    log.info("%s: %d examples, %d tokens, %d of them learned", name, *counts)
    return split


def encoded_record(name: str, record: PreferenceRecord, encoder: PreferenceEncoder) -> EncodedRecord:
    """The ids of a record of split `name`.

    Raises:
        DataError: the chat template refuses it.
    """
    try:
        return encoder.encoded(record)
    except DataError as error:
        raise DataError([replace(problem, loc=(FIELDS[name],)) for problem in error.problems]) from error


def examples_of(
    name: str, records: Iterable[EncodedRecord], encoder: PreferenceEncoder
) -> Iterator[PreferenceExample]:
    """The examples of records that nothing is against, in their order; with KTO data also mismatched ones.

    Reads no further than to the next record with another prompt.

    Raises:
        DataError: KTO data of a single record.
    """
    run: list[EncodedRecord] = []  # the latest records, which have one prompt and still wait for another
    firsts: list[EncodedRecord] = []  # the first record, and the first one with another prompt
    for record in records:
        if record.desirable is None:
            yield encoder.example(record)
            continue
        if not firsts or (len(firsts) == 1 and not _same_prompt(record, firsts[0])):
            firsts.append(record)
        if run and not _same_prompt(record, run[0]):
            yield from (_judged(waiting, record, encoder) for waiting in run)
            run = []
        run.append(record)
    if len(firsts) == 1:
        if len(run) == 1:
            raise DataError(_nothing_to_compare(name))
        yield from (_judged(one, run[at % len(run)], encoder) for at, one in enumerate(run, start=1))
    elif run:
        other = next(first for first in firsts if not _same_prompt(first, run[0]))
        yield from (_judged(waiting, other, encoder) for waiting in run)


def refuse_nothing_to_learn(name: str, kept: int, left_out: int, named: list[str]) -> None:
    """Refuse a split without any example; `named` says where its records lie and why they were left out.

    Raises:
        DataError: `kept` is 0.
    """
    if kept:
        return
    if not left_out:
        raise DataError(Problem((FIELDS[name],), f"the {name} split has no records"))
    msg = f"none of the {left_out} records of the {name} split can be learned from: "
    hint = "Raise max_seq_len, lower max_prompt_len, or look at the texts."
    raise DataError(Problem((FIELDS[name],), msg + named_records(named, left_out), hint))


def preference_warnings(split: PreferenceSplit, encoder: PreferenceEncoder) -> Iterator[Problem]:
    """What a user should know about a split: at most one warning for each kind of loss."""
    loc = (FIELDS[split.name],)
    total = len(split.examples)
    limit = f"max_seq_len={encoder.max_seq_len}"
    if split.dropped:
        out = len(split.dropped)
        msg = f"{out} of {out + total} records were left out: {named_records(split.dropped, out)}"
        yield Problem(loc, msg, "Raise max_seq_len, or look at their texts.")
    if split.cut:
        msg = f"in {split.cut} of {total} records a response is longer than {limit} leaves room for; it was"
        yield Problem(loc, f"{msg} cut and ends without EOS", "Raise max_seq_len to keep it whole.")
    if split.shortened:
        msg = f"{split.shortened} of {total} conversations lost their earliest turns to fit in {limit}"
        yield Problem(loc, msg, "Raise max_seq_len to keep them whole.")
    if split.prompts_cut:
        msg = f"{split.prompts_cut} of {total} prompts lost their front to fit in {limit}; of these the last"
        msg += f" max_prompt_len={encoder.max_prompt_len} tokens are left"
        yield Problem(loc, msg, "Raise max_seq_len to keep them whole.")
    if encoder.form.template is None and (ignored := sum(bool(record.context) for record in split.records)):
        msg = f"the context of {ignored} of {total} records is not used: there is no chat template"
        yield Problem(loc, msg, "Set chat_template, or take context out.")
    texts = (
        (record.location, {"src": record.src, "tgt": record.tgt, "response": record.responses})
        for record in split.records
    )
    if warning := special_text_warning(split.name, texts, encoder.form.special_tokens, loc[0]):
        yield warning
    judged = Counter(example.desirable for example in split.examples)
    if warning := one_judgement(split.name, judged[True], judged[False]):
        yield warning


def _nothing_to_compare(name: str) -> Problem:
    msg = f"the {name} split has a single record to learn from; task kto needs at least 2: it compares each"
    msg += " prompt's response with the response of another record"
    return Problem((FIELDS[name],), msg, "Add records.")


def _same_prompt(one: EncodedRecord, other: EncodedRecord) -> bool:
    return one.prompt.tobytes() == other.prompt.tobytes()


def _judged(record: EncodedRecord, other: EncodedRecord, encoder: PreferenceEncoder) -> PreferenceExample:
    return replace(encoder.example(record), mismatched=encoder.mismatched(record, other))


def _add(digest: hashlib.blake2b, example: PreferenceExample) -> None:
    digest.update(f"{len(example.prompt)} {example.desirable}".encode())
    digest.update(example.prompt.tobytes())
    for response in example.responses:
        digest.update(f"{response.length} {response.cut}".encode())
        digest.update(response.input_ids[:1].tobytes())
        digest.update(response.labels.tobytes())
    if example.mismatched is not None:
        _add(digest, example.mismatched)
