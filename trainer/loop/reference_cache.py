"""Log-probabilities of the reference policy, computed once and kept in the run's folder.

They save the memory of a second model, and its forward pass in every step. The file's name is made of what
they depend on, so a run that is repeated or resumed reads them, and another model or other data does not.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import paddle
from paddle import Tensor
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from trainer.data.preference_batches import PreferenceBatch
from trainer.files import atomic_file
from trainer.loop.engine import Engine, groups
from trainer.loop.reference import log_probability_passes
from trainer.parallel.communication import any_rank
from trainer.parallel.layout import Layout

log = logging.getLogger(__name__)

FOLDER = ".reference_log_probabilities"
"""Hidden, so that it is not taken for a part of the model."""

_KEY_BYTES = 16


class KnownReference:
    """A reference policy of which nothing but its log-probabilities of known responses is left.

    Attributes:
        values: summed log-probability by the key of a response behind its prompt.
    """

    def __init__(self, values: dict[bytes, float]) -> None:
        self.values = values

    def log_probabilities(self, batches: Sequence[PreferenceBatch]) -> list[Tensor]:
        """See `trainer.loop.reference.Reference`."""
        known = ([self.values[key] for key in response_keys(batch)] for batch in batches)
        return [paddle.to_tensor(np.array(values, np.float32)) for values in known]


def known_reference(
    folder: Path,
    fingerprint: str,
    batches: Iterable[PreferenceBatch],
    reference: Callable[[], Engine],
    layout: Layout,
) -> KnownReference:
    """Read the reference's log-probabilities of all responses, or compute and keep them.

    Args:
        folder: of the run.
        fingerprint: a text that is the same only for the same model, data and precision.
        batches: all of them; mismatched ones inside them count too.
        reference: runs the reference; asked for when nothing was kept.
        layout: all processes of it ask for the same.
    """
    name = hashlib.blake2b(fingerprint.encode(), digest_size=_KEY_BYTES).hexdigest()
    path = folder / FOLDER / f"{name}.safetensors"
    values = _read(path) or {}
    if any_rank(layout, not values):
        log.info("computing the log-probabilities of the reference")
        engine = reference()
        values = {}
        for group in groups(_with_mismatched(batches), engine.at_once):
            outcomes = engine.outcomes(log_probability_passes(group))
            for batch, found in zip(group, outcomes, strict=True):
                values.update(zip(response_keys(batch), map(float, found.numpy()), strict=True))
        if layout.is_host_main:
            _write(path, values)
    else:
        log.info("the log-probabilities of the reference are those of %s", path)
    return KnownReference(values)


def response_keys(batch: PreferenceBatch) -> Iterator[bytes]:
    """For every response of a batch, in order, bytes that tell it and its prompt from all others."""
    for row in range(batch.rows):
        for document in range(1, int(batch.documents[row].max()) + 1):
            here = batch.documents[row] == document
            branches = batch.branches[row]
            prompt = batch.input_ids[row][here & (branches == 0)]
            for branch in range(1, int(branches[here].max()) + 1):
                place = here & (branches == branch)
                digest = hashlib.blake2b(prompt.tobytes(), digest_size=_KEY_BYTES)
                digest.update(b"/")
                digest.update(batch.input_ids[row][place].tobytes())
                digest.update(batch.labels[row][place].tobytes())
                yield digest.digest()


def model_fingerprint(folder: Path) -> str:
    """A text that changes when a model does: names, sizes and times of its configuration and weights.

    Tools that unpack or copy files may set the time of their last change, but not that of their last change
    of status. So both count.
    """
    files = sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")])
    found = [(path.name, path.stat()) for path in files]
    return ", ".join(f"{name} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}" for name, at in found)


def _with_mismatched(batches: Iterable[PreferenceBatch]) -> Iterator[PreferenceBatch]:
    for batch in batches:
        yield batch
        if batch.mismatched is not None:
            yield batch.mismatched


def _read(path: Path) -> dict[bytes, float] | None:
    """What was kept; None where there is nothing, or it is no longer what was written."""
    try:
        stored = load_file(path)
        keys, values = stored["keys"], stored["values"]
        if stored["digest"].tobytes() != _digest(keys, values).tobytes():
            return None
    except (FileNotFoundError, SafetensorError, KeyError):
        return None
    return {key.tobytes(): float(value) for key, value in zip(keys, values, strict=True)}


def _write(path: Path, values: dict[bytes, float]) -> None:
    keys = np.frombuffer(b"".join(values), np.uint8).reshape(-1, _KEY_BYTES)
    numbers = np.array(list(values.values()), np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(save({"keys": keys, "values": numbers, "digest": _digest(keys, numbers)}))


def _digest(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """uint8 `[32]`: safetensors files have no checksum, and a changed number would be trained on."""
    return np.frombuffer(hashlib.sha256(keys.tobytes() + values.tobytes()).digest(), np.uint8)
