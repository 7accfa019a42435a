"""The files of a checkpoint on their way to a new folder: gone on with after a cut, checked at their end."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import httpx

from regatta_client.errors import DamagedFileError
from regatta_client.models import File


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` when the block ends without an error, and is gone else.

    Raises: FileExistsError when there is something at `target` that is no empty folder.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is no empty folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield folder
        folder.chmod(0o777 & ~_umask())
        os.replace(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


class Part:
    """One file while it arrives. To be closed."""

    def __init__(self, folder: Path, file: File) -> None:
        relative = PurePosixPath(file.path)
        if relative.is_absolute() or not relative.parts or ".." in relative.parts or "\\" in file.path:
            raise DamagedFileError(f"the server lists a file outside the folder: {file.path!r}")
        path = folder.joinpath(*relative.parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._about = file
        self._file = path.open("xb")
        self._hash = hashlib.sha256()
        self.received = 0

    @property
    def complete(self) -> bool:
        return self.received >= self._about.bytes

    def headers(self) -> dict[str, str]:
        """What asks for the bytes that are not there yet."""
        headers = {"Accept-Encoding": "identity"}
        if self.received:
            headers |= {"Range": f"bytes={self.received}-", "If-Range": f'"{self._about.sha256}"'}
        return headers

    def begin(self, response: httpx.Response) -> None:
        """An answer has come; one that is not the rest is the whole file."""
        if self.received and response.status_code != 206:
            self._file.seek(0)
            self._file.truncate()
            self._hash, self.received = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.received += len(data)

    def finish(self) -> None:
        """Raises: DamagedFileError when this is not the file that was listed."""
        if self.received != self._about.bytes or self._hash.hexdigest() != self._about.sha256:
            raise DamagedFileError(f"{self._about.path} arrived damaged: {self.received} bytes")

    def close(self) -> None:
        self._file.close()
