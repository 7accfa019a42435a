"""Who writes what: every process computes the same plan from what all of them hold.

Numbers that several processes hold (data parallel replicas, weights that are not split) are written by one of
them, and the bytes are dealt out so that all write about as much. Where hosts share no folder, each file lies
on one of them, its home: the one that holds most of it. What is only held elsewhere is sent there (`hosts`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainer.checkpoint.pieces import Piece, TensorFiles
from trainer.checkpoint.regions import Region, overlap, region_size, whole
from trainer.models.safetensors_file import TensorHeader, encode_header
from trainer.models.weights_save import index_content, shards


class Key(NamedTuple):
    """A tensor of a set of files."""

    stem: str
    name: str


class Share(NamedTuple):
    """A rectangle that a process holds."""

    key: Key
    header: TensorHeader
    region: Region

    @property
    def bytes(self) -> int:
        return region_size(self.region) * self.header.item_size


class FileSet(NamedTuple):
    """What all processes say alike of a set of files."""

    stem: str
    form: str
    max_bytes: int | None


@dataclass(frozen=True)
class Holdings:
    """What one process holds: what it tells the others."""

    sets: tuple[FileSet, ...]
    shares: tuple[Share, ...]

    @classmethod
    def of(cls, files: Iterable[TensorFiles]) -> Holdings:
        files = list(files)
        return cls(
            tuple(FileSet(group.stem, group.form, group.max_bytes) for group in files),
            tuple(
                Share(Key(group.stem, piece.name), piece.header, piece.region)
                for group in files
                for piece in group.pieces
            ),
        )


@dataclass(frozen=True)
class PlannedFile:
    """One safetensors file.

    Attributes:
        path: below the directory.
        head: the bytes before the first tensor.
        size: bytes of the whole file.
        reader: the process that computes its checksum.
        home: the host that it lies on, of those that share no folder.
    """

    path: str
    head: bytes
    size: int
    reader: int
    home: int = 0


class Move(NamedTuple):
    """A rectangle that no process of its file's home holds."""

    key: Key
    header: TensorHeader
    region: Region
    writer: int
    home: int


class Place(NamedTuple):
    """Where a tensor lies: the path of its file, and its first byte there."""

    path: str
    offset: int


@dataclass(frozen=True)
class Plan:
    """What is to be written where, and by whom.

    Attributes:
        files: all files of tensors.
        indices: content of the index files, by path.
        places: where each tensor lies.
        writers: which process writes a rectangle; those that are not here need no writing.
        moves: what is sent to the home of its file instead of being written where it is.
    """

    files: tuple[PlannedFile, ...]
    indices: Mapping[str, Mapping[str, Any]]
    places: Mapping[Key, Place]
    writers: Mapping[tuple[Key, Region], int]
    moves: tuple[Move, ...] = ()

    def pieces_of(self, rank: int, files: Iterable[TensorFiles]) -> list[tuple[Place, Piece]]:
        """The pieces that process `rank` writes out of those it holds, and where to."""
        found = {}
        for group in files:
            for piece in group.pieces:
                key = Key(group.stem, piece.name)
                if self.writers.get((key, piece.region)) == rank:
                    found[key, piece.region] = self.places[key], piece
        return list(found.values())


def make_plan(holdings: Sequence[Holdings], hosts: int = 1) -> Plan:
    """The plan for what each process holds, by rank.

    Args:
        hosts: so many, of as many processes each, share no folder.

    Raises:
        RuntimeError: processes differ about the files or a tensor, or nobody holds some part of one.
    """
    sets = holdings[0].sets
    if any(other.sets != sets for other in holdings):
        raise RuntimeError("the processes do not store the same files")
    headers, regions = _merge(holdings)
    size = len(holdings) // hosts
    load = [0] * hosts
    homes: dict[Key, int] = {}
    files: list[PlannedFile] = []
    indices: dict[str, Mapping[str, Any]] = {}
    places: dict[Key, Place] = {}
    for group in sets:
        of_group = {key.name: header for key, header in headers.items() if key.stem == group.stem}
        folder, _, base = group.stem.rpartition("/")
        prefix = f"{folder}/" if folder else ""
        names = shards(of_group, group.max_bytes, base)
        if len(names) > 1:
            indices[f"{group.stem}.safetensors.index.json"] = index_content(of_group, names)
        for file, tensors in names.items():
            inside = {name: of_group[name] for name in tensors}
            head, offsets = encode_header(inside, {"format": group.form})
            total = len(head) + sum(header.bytes for header in inside.values())
            keys = [Key(group.stem, name) for name in inside]
            home = _home(keys, headers, regions, load, size)
            load[home] += total
            homes |= dict.fromkeys(keys, home)
            reader = home * size + len(files) % size
            files.append(PlannedFile(prefix + file, head, total, reader, home))
            places |= {
                Key(group.stem, name): Place(prefix + file, offset) for name, offset in offsets.items()
            }
    writers, moves = _writers(headers, regions, homes, size, len(holdings))
    return Plan(tuple(files), indices, places, writers, moves)


#: For every tensor the rectangles of it that are held, and by which processes.
_Regions = dict[Key, dict[Region, list[int]]]


def _merge(holdings: Sequence[Holdings]) -> tuple[dict[Key, TensorHeader], _Regions]:
    headers: dict[Key, TensorHeader] = {}
    regions: _Regions = defaultdict(lambda: defaultdict(list))
    for rank, holding in enumerate(holdings):
        for share in holding.shares:
            known = headers.setdefault(share.key, share.header)
            if known != share.header:
                msg = f"{share.key.name}: process {rank} holds {share.header}, another one {known}"
                raise RuntimeError(msg)
            holders = regions[share.key][share.region]
            if rank not in holders:
                holders.append(rank)
    return headers, regions


def _home(
    keys: Iterable[Key],
    headers: Mapping[Key, TensorHeader],
    regions: _Regions,
    load: Sequence[int],
    size: int,
) -> int:
    """The host (of `size` processes each) that holds most of a file; of equals that with the least so far."""
    held = [0] * len(load)
    for key in keys:
        for region, holders in regions[key].items():
            for host in {rank // size for rank in holders}:
                held[host] += region_size(region) * headers[key].item_size
    return min(range(len(load)), key=lambda host: (-held[host], load[host], host))


def _writers(
    headers: Mapping[Key, TensorHeader],
    regions: _Regions,
    homes: Mapping[Key, int],
    size: int,
    ranks: int,
) -> tuple[dict[tuple[Key, Region], int], tuple[Move, ...]]:
    """Deal out the rectangles: first those that one process alone holds, then the rest, large ones first.
    Those that nobody at the home of their file holds come as moves.
    """
    needed: list[tuple[int, Key, Region, list[int]]] = []
    for key, held in regions.items():
        header, chosen = headers[key], list[Region]()
        for region in sorted(held, key=lambda region: (-region_size(region), region)):
            # Where the copies of a weight are cut differently, some rectangles lie inside of others.
            if any(overlap(region, larger) == region for larger in chosen):
                continue
            chosen.append(region)
            at_home = [rank for rank in held[region] if rank // size == homes[key]]
            needed.append((region_size(region) * header.item_size, key, region, at_home or held[region]))
        if missing := _uncovered(header.shape, chosen):
            raise RuntimeError(f"{key.name}: no process holds {missing} of {list(header.shape)}")
    needed.sort(key=lambda item: (len(item[3]) > 1, -item[0], item[1], item[2]))
    load = [0] * ranks
    writers = {}
    moves = []
    for amount, key, region, holders in needed:
        rank = min(holders, key=lambda holder: (load[holder], holder))
        load[rank] += amount
        if rank // size == homes[key]:
            writers[key, region] = rank
        else:
            moves.append(Move(key, headers[key], region, rank, homes[key]))
    return writers, tuple(moves)


def _uncovered(shape: Sequence[int], regions: Iterable[Region]) -> Region | None:
    """A rectangle of a tensor that is in none of the regions; None when there is none."""
    rest = [whole(shape)] if all(shape) else []
    for region in regions:
        rest = [left for part in rest for left in _without(part, region)]
    return rest[0] if rest else None


def _without(part: Region, region: Region) -> list[Region]:
    """What is left of a rectangle, as rectangles, when another one is cut out of it."""
    common = overlap(part, region)
    if common is None:
        return [part]
    left = []
    for axis, ((start, stop), (first, last)) in enumerate(zip(part, common, strict=True)):
        sides = [(start, first), (last, stop)]
        left += [(*common[:axis], side, *part[axis + 1 :]) for side in sides if side[0] < side[1]]
    return left
