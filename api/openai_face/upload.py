"""The form of POST /v1/files: a training file, kept as it came beside its records, and its purpose."""

import hashlib
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from api.datasets.bodies import FormBody, malformed
from api.datasets.upload import File, Upload, explained_lack_of_room, refused_early
from api.openai_face.records import ChatKind
from trainer.config.problems import Problem
from trainer.config.values import show

ORIGINAL = "original"
"""Name of the file as it came, and of what is kept of it with the split."""
WITH_SYSTEM = "with_system"
"""Name of what is kept with the split: how many records have a system message."""
PURPOSE = "fine-tune"


class TrainingFile(Upload):
    """A training file while it arrives."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._chats = ChatKind(None)
        super().__init__(folder, limit, kind=self._chats)
        self.purpose: str | None = None
        self._original = _Original(folder / ORIGINAL)

    def taking(self, file: File) -> tuple[Callable[[bytes], None], Callable[[], None]]:
        """What takes the bytes of the file, and its end."""

        def feed(data: bytes) -> None:
            with explained_lack_of_room():
                self._original.write(data)
            file.feed(data)

        return feed, file.end

    def finish(self) -> None:
        if self.purpose is None:
            raise refused_early([Problem(("body", "purpose"), "is missing", f"Send {PURPOSE}.")])
        super().finish()
        with explained_lack_of_room():
            self._original.settle()

    def about(self) -> dict[str, dict[str, Any]]:
        about = super().about()
        about["train"] |= {ORIGINAL: self._original.about(), WITH_SYSTEM: self._chats.with_system}
        return about

    def close(self) -> None:
        self._original.close()
        super().close()


class _Original:
    """The bytes of the file as they came."""

    def __init__(self, path: Path) -> None:
        self._size = 0
        self._hash = hashlib.sha256()
        self._open = ExitStack()
        self._file = self._open.enter_context(path.open("xb"))

    def write(self, data: bytes) -> None:
        self._size += len(data)
        self._hash.update(data)
        self._file.write(data)

    def settle(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def about(self) -> dict[str, Any]:
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def close(self) -> None:
        self._open.close()


class FineTuneForm(FormBody):
    """The form that OpenAI's clients send."""

    files: ClassVar[tuple[str, ...]] = ("file",)
    fields: ClassVar[tuple[str, ...]] = ("purpose",)

    def __init__(self, training_file: TrainingFile, boundary: bytes) -> None:
        super().__init__(training_file, boundary)
        self._training_file = training_file

    def taking(self, file: File, label: str) -> tuple[Callable[[bytes], None], Callable[[], None]]:
        if self._training_file.name is not None:
            raise malformed("The form has more than one file.")
        self._training_file.name = label or "file.jsonl"
        return self._training_file.taking(file)

    def say(self, field: str, value: str) -> None:
        if value != PURPOSE:
            msg = f"got {show(value)}, expected {PURPOSE}: this server has files to train on and no others"
            raise refused_early([Problem(("body", field), msg, f"Send {PURPOSE}.")])
        self._training_file.purpose = value
