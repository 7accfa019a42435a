"""What becomes of files that were written under a hidden name: a directory, or files of a folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoint.directory import (
    FINAL,
    WHOLE,
    Checksums,
    Part,
    partial_name,
    put_in_place,
    sync,
    sync_tree,
    write_manifest,
)
from trainer.config.adapters import ADAPTER_CONFIG
from trainer.models.weights_save import remove_stale_weights


@dataclass(frozen=True)
class Target:
    """Where a save goes.

    Attributes:
        path: the directory that is to hold the files.
        partial: the directory in which they are written.
        has_manifest: whether checksums are computed and written.
        publish: moves what was written to its place, given the checksums of the files of tensors.
    """

    path: Path
    partial: Path
    has_manifest: bool
    publish: Callable[[Checksums], None]


def whole_directory_target(path: Path, part: Part = WHOLE) -> Target:
    """A directory, or this host's part of one, that appears at once, with a manifest; one that exists is
    replaced.
    """
    partial = partial_name(path)

    def publish(checksums: Checksums) -> None:
        write_manifest(partial, checksums, part)
        sync_tree(partial)
        put_in_place(partial, path)

    return Target(path, partial, True, publish)


def files_target(folder: Path) -> Target:
    """Files of a folder that has others too. Each appears whole; weights of an earlier save disappear."""
    partial = partial_name(folder / FINAL)

    def publish(_: Checksums) -> None:
        sync_tree(partial)
        paths = sorted((path for path in partial.rglob("*") if path.is_file()), key=_order)
        for path in paths:
            place = folder / path.relative_to(partial)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)
        written = {path.relative_to(partial).as_posix() for path in paths}
        if ADAPTER_CONFIG not in written:
            remove_stale_weights(folder, written)
        sync(folder)
        shutil.rmtree(partial)

    return Target(folder, partial, False, publish)


def _order(path: Path) -> tuple[bool, bool, str]:
    """Tensors first and an adapter's settings last, so that a folder which has these is whole."""
    return path.name == ADAPTER_CONFIG, path.suffix != ".safetensors", path.name
