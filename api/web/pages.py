"""Serves the dashboard: files that hold nothing of a user, so anybody may read them.

The data that they show come from the API, with a key where it wants one.
"""

import re
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Response

from api.problems import ApiError

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Cache-Control": "no-cache",  # kept, but asked for each time: the files change with the version
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
}

_PATH = re.compile(r"(?:[a-z0-9_-]+/)*[a-z0-9_-]+\.[a-z]+")

router = APIRouter(include_in_schema=False)

IfNoneMatch = Annotated[str, Header()]


@router.api_route("/", methods=["GET", "HEAD"])
def index(if_none_match: IfNoneMatch = "") -> Response:
    """The page that all views are drawn on."""
    return _answer("index.html", if_none_match)


@router.api_route("/static/{path:path}", methods=["GET", "HEAD"])
def static(path: str, if_none_match: IfNoneMatch = "") -> Response:
    """A style sheet, script or picture. Raises: ApiError (404)."""
    return _answer(path, if_none_match)


def _answer(path: str, if_none_match: str) -> Response:
    file = STATIC / path
    if not _PATH.fullmatch(path) or file.suffix not in TYPES or not file.is_file():
        raise ApiError("not-found", f"The dashboard has no file {path[:200]!r}.")
    content = file.read_bytes()
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    headers = HEADERS | {"ETag": tag}
    if tag in if_none_match or if_none_match.strip() == "*":
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=TYPES[file.suffix], headers=headers)
