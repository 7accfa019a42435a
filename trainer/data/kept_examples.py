"""Examples that were encoded once and are kept in a folder, by what they depend on.

The name of a file is made of the records, the encoder with its tokenizer and the form of the file. So a run
that is repeated or resumed finds them, and other data or another tokenizer does not. Files appear whole,
carry a checksum and hold nothing but numbers; one that is not what was written is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from trainer.data.sft import Example
from trainer.files import atomic_file

if TYPE_CHECKING:
    from trainer.config.records import SftRecord
    from trainer.data.encoding import Encoder

log = logging.getLogger(__name__)

#: In output_dir; hidden, since it is no part of a result.
FOLDER = ".examples"
#: Fewer tokens are encoded as fast as they are found.
WORTH_KEEPING = 100_000
#: The files of a folder take no more bytes; the oldest ones go.
MAX_BYTES = 4 << 30

# Changes with how examples are made or stored.
_FORM = 1


def encoded(records: Sequence[SftRecord], encoder: Encoder, folder: Path | None) -> list[Example]:
    """The example of every record, from the folder where it has them.

    Args:
        folder: where they are kept; it may be shared by several runs. None: nowhere.

    Raises:
        DataError: the chat template refuses a record.
    """
    fingerprint = None if folder is None else encoder.fingerprint()
    if folder is None or fingerprint is None:
        return [encoder.example(record) for record in records]
    path = folder / f"{_key(records, fingerprint)}.safetensors"
    examples = _read(path, len(records))
    if examples is not None:
        log.info("the examples of %d records are those that %s keeps", len(records), folder)
        return examples
    examples = [encoder.example(record) for record in records]
    if sum(example.length for example in examples) >= WORTH_KEEPING:
        try:
            _write(path, examples)
        except OSError as error:
            log.warning("the encoded examples are not kept for another run: %s", error)
    return examples


def _key(records: Sequence[SftRecord], fingerprint: str) -> str:
    digest = hashlib.blake2b(f"{_FORM} {fingerprint}".encode(), digest_size=16)
    for record in records:
        text = json.dumps([record.src, record.tgt, record.context], default=str)
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()


def _read(path: Path, count: int) -> list[Example] | None:
    """What was kept; None where there is nothing, or it is not what was written."""
    try:
        stored = load_file(path)
        ids, labels, facts = stored["input_ids"], stored["labels"], stored["facts"]
        if stored["digest"].tobytes() != _digest(ids, labels, facts).tobytes() or len(facts) != count:
            return None
    except (OSError, SafetensorError, KeyError):
        return None
    ends = np.cumsum(facts[:, 0])
    return [
        Example(ids[end - length : end], labels[end - length : end], bool(cut), int(lost), int(masked))
        for end, (length, cut, lost, masked) in zip(ends, facts, strict=True)
    ]


def _write(path: Path, examples: Sequence[Example]) -> None:
    ids = np.concatenate([example.input_ids for example in examples])
    labels = np.concatenate([example.labels for example in examples])
    facts = np.array(
        [(one.length, one.cut, one.lost_turns, one.masked_turns) for one in examples], dtype=np.int64
    )
    content = {"input_ids": ids, "labels": labels, "facts": facts, "digest": _digest(ids, labels, facts)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(save(content))
    _remove_oldest(path.parent)


def _remove_oldest(folder: Path) -> None:
    found = [(path.stat(), path) for path in folder.glob("*.safetensors")]
    room = MAX_BYTES
    for status, path in sorted(found, key=lambda entry: -entry[0].st_mtime_ns):
        room -= status.st_size
        if room < 0:
            path.unlink(missing_ok=True)


def _digest(*arrays: np.ndarray) -> np.ndarray:
    """uint8 `[32]`: safetensors files have no checksum, and a changed token would be trained on."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
