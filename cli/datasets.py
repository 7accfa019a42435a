"""Data sets on the way to a server and back."""

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from cli.archive import refuse_used
from cli.client import Client
from cli.errors import INVALID, CliError
from cli.output import console
from regatta_client.downloads import new_folder
from trainer.config.data_files import SUFFIXES, find_data_files

SPLITS = ("train", "dev", "quant")


def dataset_path(dataset: str, *parts: str) -> str:
    """The path of a data set, or of something that belongs to it; every part is one path segment."""
    return "/".join(["/datasets", *(quote(part, safe="") for part in (dataset, *parts))])


def files_to_send(paths: Iterable[Path], split: str | None) -> list[tuple[str, Path]]:
    """The split and the path of every file.

    A file belongs to `split`, else to the split that it is named after (`dev.jsonl.gz`), else to train; a
    folder has files for every split, as the folder of a job has.

    Raises:
        CliError: a path is neither, or a folder has no such file.
    """
    found: list[tuple[str, Path]] = []
    for path in paths:
        if path.is_dir():
            inside = find_data_files(path, SPLITS)
            found += [(split or name, file) for name, files in inside.items() for file in files]
            if not any(inside.values()):
                raise CliError(f"{path} has no train.json, dev.json or quant.json.", INVALID)
        elif path.is_file():
            found.append((split or _named_split(path), path))
        else:
            raise CliError(f"{path} is no file and no folder.", INVALID)
    return found


def upload(
    client: Client, files: Sequence[tuple[str, Path]], fields: dict[str, Any], *, check: bool
) -> dict[str, Any]:
    """Send files, each read while it is sent; the server's answer.

    Args:
        fields: `name` and `kind`, where they are given.
        check: only validate.
    """
    with ExitStack() as stack:
        advance = stack.enter_context(_progress("upload", sum(path.stat().st_size for _, path in files)))
        parts = []
        for split, path in files:
            try:
                file = stack.enter_context(_Watched(path, advance))
            except OSError as error:
                raise CliError(f"{path}: {error.strerror}.", INVALID) from error
            parts.append((split, (path.name, file, "application/x-ndjson")))
        return client.send_files("/datasets/validate" if check else "/datasets", parts, fields)


def download(client: Client, dataset: str, target: Path) -> None:
    """Store the files of a data set in `target`, a new folder that appears only when all are whole.

    Raises:
        CliError: `target` is in use, or a file arrives damaged.
    """
    refuse_used(target)
    shown = client.get(dataset_path(dataset))
    with new_folder(target) as partial, _progress("download", shown["bytes"]) as advance:
        for split, about in shown["splits"].items():
            address = dataset_path(dataset, "files", split)
            _download(client, address, partial / f"{split}.json", about, advance)


def _named_split(path: Path) -> str:
    stems = [path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix)]
    return next((stem for stem in stems if stem in SPLITS), "train")


def _download(
    client: Client, address: str, path: Path, about: dict[str, Any], advance: Callable[[int], None]
) -> None:
    digest = hashlib.sha256()
    with client.stream(address) as response, path.open("xb") as file:
        for piece in response.iter_bytes():
            file.write(piece)
            digest.update(piece)
            advance(len(piece))
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != about["sha256"]:
        raise CliError(f"{path.name} arrived damaged: its sha256 is not the listed one. Try again.")


class _Watched(io.FileIO):
    """A file that tells how much of it was read."""

    def __init__(self, path: Path, advance: Callable[[int], None]) -> None:
        super().__init__(path)
        self._advance = advance

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(-1 if size is None else size) or b""
        self._advance(len(piece))
        return piece


@contextmanager
def _progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; the block gets what moves it on."""
    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as progress:
        bar = progress.add_task(name, total=total)
        yield lambda count: progress.advance(bar, count)
