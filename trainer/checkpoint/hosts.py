"""What hosts that share no folder send each other: what others are to write, and whole files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.checkpoint.pieces import Piece
from trainer.checkpoint.ranks import Ranks
from trainer.checkpoint.snapshot import Copied
from trainer.checkpoint.tensor_files import blocks
from trainer.files import atomic_file

if TYPE_CHECKING:
    from trainer.checkpoint.pieces import TensorFiles
    from trainer.checkpoint.plan import Move, Plan
    from trainer.checkpoint.regions import Region

#: So much a process sends at a time; every process sees what each of the others sends.
_CHUNK_BYTES = 16 << 20


def moved(ranks: Ranks, plan: Plan, files: Iterable[TensorFiles]) -> list[Copied]:
    """Send what the plan moves to the homes of its files; returns what came to this process.

    All processes call this. What arrives is held in memory until it is written, by the first one of a host.
    """
    if not plan.moves:
        return []
    held = {(group.stem, piece.name, piece.region): piece for group in files for piece in group.pieces}
    queues: list[list[tuple[Move, Region]]] = [[] for _ in range(ranks.size)]
    for move in plan.moves:
        pieces = blocks(move.region, move.header, _CHUNK_BYTES)
        queues[move.writer] += [(move, region) for region, _ in pieces]
    outgoing = _outgoing(plan, held, ranks.rank)
    arrived = []
    for turn in zip_longest(*queues):
        sent = ranks.gather(next(outgoing, None))
        for item, values in zip(turn, sent, strict=True):
            if item is not None and item[0].home == ranks.host and ranks.is_host_main:
                arrived.append(_received(plan, item[0], item[1], values))
    return arrived


def _outgoing(plan: Plan, held: dict[tuple[str, str, Region], Piece], rank: int) -> Iterator[np.ndarray]:
    """What a process sends, in the order of the plan."""
    for move in plan.moves:
        if move.writer == rank:
            piece = held[move.key.stem, move.key.name, move.region]
            values = Copied(plan.places[move.key], piece, piece.values()).disk_values()
            for _, rows in blocks(move.region, move.header, _CHUNK_BYTES):
                yield np.ascontiguousarray(values[rows])


def _received(plan: Plan, move: Move, region: Region, values: Any) -> Copied:
    piece = Piece(move.key.name, move.header, region, False, lambda: values)
    return Copied(plan.places[move.key], piece, values)


def bring_together(ranks: Ranks, directory: Path) -> None:
    """Copy the files that only some hosts have to the others, through the processes; all of them call this.

    Raises: OSError when they cannot be written here.
    """
    told = ranks.gather(_names(directory) if ranks.is_host_main else set[str]())
    for name in sorted(set[str]().union(*told)):
        owner = next(rank for rank, names in enumerate(told) if name in names)
        lacking = ranks.is_host_main and name not in told[ranks.rank]
        pieces = _pieces(ranks, directory / name, owner)
        if not lacking:
            for _ in pieces:
                continue
            continue
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as file:
            for piece in pieces:
                file.write(piece)


def _names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def _pieces(ranks: Ranks, path: Path, owner: int) -> Iterator[bytes]:
    """The bytes of a file of one process, in all of them."""
    descriptor = os.open(path, os.O_RDONLY) if ranks.rank == owner else None
    try:
        offset = 0
        while True:
            mine = b"" if descriptor is None else os.pread(descriptor, _CHUNK_BYTES, offset)
            piece = _of(ranks.gather(mine), owner)
            if not piece:
                return
            offset += len(piece)
            yield piece
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _of(gathered: Sequence[bytes], owner: int) -> bytes:
    return gathered[owner]
