"""The two shapes of a body that brings data: JSON lines as they are, and a form with files."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header

from api.datasets.upload import BEFORE_THE_END, File, Upload, checked_field, refused_early
from api.problems import ApiError
from store.datasets import SPLITS
from trainer.config.problems import Problem
from trainer.config.values import printable, show

FORM = "multipart/form-data"
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
MOST_PARTS = 1000
LONGEST_VALUE = 4096
"""Bytes of a field that is no file."""
LONGEST_LABEL = 60
"""Characters of a file's name that messages show."""


class LinesBody:
    """A body that is one file."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self._file = upload.begin_file(upload.split)

    def feed(self, data: bytes) -> None:
        """More of the body. Raises ApiError."""
        self._file.feed(data)

    def finish(self) -> None:
        """The body is complete. Raises ApiError."""
        self._file.end()
        self._upload.finish()


class FormBody:
    """A form. A file in the field `train`, `dev` or `quant` belongs to that split, one in the field `file` to
    the split that the field `split` before it names. `name` and `kind` are about all of them.
    """

    files: ClassVar[tuple[str, ...]] = (*SPLITS, "file")
    fields: ClassVar[tuple[str, ...]] = ("split", "name", "kind")

    def __init__(self, upload: Upload, boundary: bytes) -> None:
        self.upload = upload
        self._parts = 0
        self._headers: dict[bytes, bytes] = {}
        self._header = b""
        self._value = b""
        self._take: Callable[[bytes], None] = self._to_nowhere
        self._end: Callable[[], None] = lambda: None
        self._split_is_open = False
        callbacks: dict[str, Any] = {
            "on_part_begin": self._begin_part,
            "on_header_field": self._on_header_name,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers,
            "on_part_data": lambda data, start, end: self._take(data[start:end]),
            "on_part_end": lambda: self._end(),
        }
        self._parser = MultipartParser(boundary, callbacks)  # pyright: ignore[reportArgumentType]

    def feed(self, data: bytes) -> None:
        """More of the body. Raises ApiError."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise malformed(f"The form cannot be read: {error}.") from error

    def finish(self) -> None:
        """The body is complete. Raises ApiError."""
        if self._parser.state != MultipartState.END:
            raise malformed("The form ends before its last boundary.")
        if self._split_is_open:
            msg = "got split behind the last file, expected it before the file that it is about"
            raise refused_early(
                [Problem(("body", "split"), msg, "Send split first, or name the field by it.")]
            )
        self.upload.finish()

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise malformed(f"The form has more than {MOST_PARTS} parts.")
        self._headers, self._header, self._value = {}, b"", b""

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        field = options.get(b"name", b"").decode("utf-8", "replace")
        is_file = b"filename" in options
        if field in self.files:
            self._begin_file(field, options.get(b"filename", b""))
        elif field in self.fields and not is_file:
            self._begin_field(field)
        else:
            expected = f"a file in {' or '.join(self.files)}, or one of the fields {', '.join(self.fields)}"
            shown = f"a file in the field {show(field)}" if is_file else f"the field {show(field)}"
            problem = Problem(("body", field or "form"), f"got {shown}, expected {expected}", "Name it so.")
            raise refused_early([problem])

    def _begin_file(self, field: str, filename: bytes) -> None:
        label = printable(filename.decode("utf-8", "replace"))[:LONGEST_LABEL]
        file = self.upload.begin_file(self.upload.split if field == "file" else field, label)
        self._split_is_open = self._split_is_open and field != "file"
        self._take, self._end = self.taking(file, label)

    def taking(self, file: File, label: str) -> tuple[Callable[[bytes], None], Callable[[], None]]:
        """What takes the bytes of a file, and its end."""
        return file.feed, file.end

    def _begin_field(self, field: str) -> None:
        value = bytearray()

        def take(data: bytes) -> None:
            value.extend(data)
            if len(value) > LONGEST_VALUE:
                raise malformed(f"The field {field} has more than {LONGEST_VALUE} bytes.")

        def end() -> None:
            with suppress(UnicodeDecodeError):
                self.say(field, value.decode())
                return
            raise malformed(f"The field {field} is not UTF-8.")

        self._take, self._end = take, end

    def say(self, field: str, value: str) -> None:
        """Take the value of a field. Raises ApiError (422)."""
        value = checked_field(field, value)
        if field == "name":
            self.upload.name = value
        elif field == "kind":
            self.upload.say_kind(value)
        else:
            self.upload.split, self._split_is_open = value, True

    def _to_nowhere(self, data: bytes) -> None: ...


def malformed(detail: str) -> ApiError:
    """400 that does not wait for the rest of the body."""
    return ApiError("malformed-body", detail, headers=BEFORE_THE_END)
