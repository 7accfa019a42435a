"""Reading a request body: one JSON object, strictly.

JSON as RFC 8259 has it and no more: UTF-8, no NaN or Infinity, no repeated names, no lone surrogates, no NUL
characters (PostgreSQL cannot hold them), at most `MAX_DEPTH` levels. The size limit is kept while reading.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from itertools import islice
from typing import Any

from starlette.requests import ClientDisconnect, Request

from api.explain import shown
from api.problems import MOST_PROBLEMS, ApiError, invalid
from trainer.config.problems import Problem
from trainer.config.values import show

MAX_DEPTH = 64


async def read_json_object(request: Request, limit: int, timeout_s: float = 30.0) -> dict[str, Any]:
    """The request's JSON object.

    Raises:
        ApiError: 408 when it is not there in time; 415 for another media type, charset or encoding; 413 above
            `limit` bytes; 400 for text that is not JSON; 422 for JSON that is no object or holds what no job
            can hold, with all its places.
    """
    _check_media_type(request)
    try:
        async with asyncio.timeout(timeout_s):
            raw = await _read_bytes(request, limit)
    except TimeoutError as error:
        detail = f"The body was not complete after {timeout_s:g} s; send it at once."
        raise ApiError("timeout", detail, headers={"Connection": "close"}) from error
    return parse_json_object(raw)


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """Parses one strict JSON object. Raises ApiError as `read_json_object` does."""
    document, repeated = _parse(_decode(raw))
    problems = _inspect(document, repeated)
    if problems:
        raise invalid(problems)
    if not isinstance(document, dict):
        msg = f"got {shown(document)}, expected a JSON object"
        raise invalid([Problem(("body",), msg, 'Send {"task": ..., "config": {...}}.')])
    return document


def _check_media_type(request: Request) -> None:
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    media_type, charset = header.get_content_type(), header.get_content_charset("utf-8")
    given = request.headers.get("content-type")
    is_json = media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
    if given is None or not is_json:
        raise _unsupported(f"Got Content-Type {given or 'none'!r}, expected 'application/json'.")
    if charset not in ("utf-8", "utf8", "us-ascii"):
        raise _unsupported(f"Got charset {charset!r}; JSON is UTF-8.")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise _unsupported(f"Got Content-Encoding {encoding!r}; send the body as it is.")


def _unsupported(detail: str) -> ApiError:
    return ApiError("unsupported-media-type", detail, headers={"Accept": "application/json"})


async def _read_bytes(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
    except ClientDisconnect as error:
        raise ApiError("malformed-json", "The connection ended before the body did.") from error
    return bytes(body)


def _too_large(limit: int) -> ApiError:
    detail = (
        f"The body has more than {limit} bytes. A job is its argument file, not its data: "
        "put data in a file under a data root and name its path."
    )
    return ApiError("body-too-large", detail, headers={"Connection": "close"}, max_bytes=limit)


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = (
            f"Byte {error.start} of the body (0x{raw[error.start]:02x}) is not UTF-8. Save the file as UTF-8."
        )
        raise ApiError("malformed-json", detail) from error


@dataclass(frozen=True)
class _NotANumber:
    """A number that JSON or a 64-bit float does not have; kept so that its place can be told."""

    text: str


@dataclass(frozen=True)
class _Repetition:
    """An object that had names more than once. Holding it keeps its identity from being used again."""

    built: dict[str, Any]
    names: list[str]


_Repetitions = dict[int, _Repetition]
"""By the identity of the object."""


def _parse(text: str) -> tuple[Any, _Repetitions]:
    """Parses `text`; also gives the objects with repeated names."""
    repeated: _Repetitions = {}
    try:
        document = json.loads(
            text,
            object_pairs_hook=_object_hook(repeated),
            parse_constant=_NotANumber,
            parse_float=_finite_float,
            parse_int=_bounded_int,
        )
    except json.JSONDecodeError as error:
        detail = f"Line {error.lineno}, column {error.colno}: {error.msg}."
        raise ApiError("malformed-json", detail, line=error.lineno, column=error.colno) from error
    except RecursionError as error:
        raise ApiError("malformed-json", f"The body nests deeper than {MAX_DEPTH} levels.") from error
    return document, repeated


def _object_hook(repeated: _Repetitions) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            names = [name for name, count in counts.items() if count > 1]
            repeated[id(built)] = _Repetition(built, names)
        return built

    return build


def _finite_float(text: str) -> float | _NotANumber:
    value = float(text)
    return value if abs(value) != float("inf") else _NotANumber(text)


def _bounded_int(text: str) -> int | _NotANumber:
    return int(text) if len(text) <= 100 else _NotANumber(text)


def _inspect(document: Any, repeated: _Repetitions) -> list[Problem]:
    """What JSON allows (or Python reads) in the document and a job cannot hold: all of it, or the first
    problems and one more than an answer shows.
    """
    problems: list[Problem] = []
    pending: list[tuple[tuple[str | int, ...], Any]] = [(("body",), document)]
    while pending and len(problems) <= MOST_PROBLEMS:
        loc, value = pending.pop()
        if len(loc) > MAX_DEPTH + 1:
            raise ApiError("malformed-json", f"The body nests deeper than {MAX_DEPTH} levels.")
        problems += _own_faults(loc, value, repeated)
        if isinstance(value, dict | list):
            members = value.items() if isinstance(value, dict) else enumerate(value)
            pending += reversed([((*loc, key), item) for key, item in members if _may_have_faults(item)])
    return problems


def _may_have_faults(value: Any) -> bool:
    """Keeps the places of plain values from being built: there may be half a million."""
    if isinstance(value, dict | list):
        return bool(value)
    return isinstance(value, _NotANumber) or (isinstance(value, str) and _text_fault(value) is not None)


def _own_faults(loc: tuple[str | int, ...], value: Any, repeated: _Repetitions) -> list[Problem]:
    """What is wrong with the value itself, its members left aside."""
    if isinstance(value, dict):
        twice = repeated[id(value)].names[: MOST_PROBLEMS + 1] if id(value) in repeated else []
        faults = ((name, fault) for name in value if (fault := _text_fault(name)))
        return [_repeated(loc, name) for name in twice] + [
            Problem(loc, f"the name {show(name)} {fault}", "Send names without such characters.")
            for name, fault in islice(faults, MOST_PROBLEMS + 1)
        ]
    if isinstance(value, _NotANumber):
        return [_not_a_number(loc, value.text)]
    if isinstance(value, str) and (fault := _text_fault(value)):
        return [Problem(loc, f"the text {fault}", "Send text without such characters.")]
    return []


def _repeated(loc: tuple[str | int, ...], name: str) -> Problem:
    msg = f"the name {show(name)} is given more than once"
    return Problem((*loc, name), msg, "Keep the one that you mean.")


def _not_a_number(loc: tuple[str | int, ...], text: str) -> Problem:
    short = text if len(text) <= 24 else text[:21] + "..."
    return Problem(
        loc, f"got {short}, expected a finite number", "JSON has no NaN or Infinity: send a number or null."
    )


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return None
