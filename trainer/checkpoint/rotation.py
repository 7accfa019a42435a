"""Which checkpoints save_total_limit removes."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.checkpoint.find import Checkpoint


def surplus(
    checkpoints: Sequence[Checkpoint], limit: int | None, last: Checkpoint, best: str | None
) -> list[Checkpoint]:
    """The checkpoints to remove so that `limit` are left, oldest step first.

    The last one and the best one always stay: with a limit of 1 and a best that is not the last, two are
    kept. Checkpoints of a later step than the last one belong to another run and are left alone.

    Args:
        checkpoints: all of the output directory.
        limit: save_total_limit; None or less than 1 keeps everything.
        last: the checkpoint that was just saved.
        best: name of the best checkpoint, if one is known.
    """
    if limit is None or limit < 1:
        return []
    by_age = sorted((c for c in checkpoints if c.step <= last.step), key=lambda c: c.step)
    protected = [c for c in by_age if c.name in {last.name, best}]
    others = [c for c in by_age if c not in protected]
    spare = max(0, limit - len(protected))
    return others[: len(others) - spare] if spare else others
