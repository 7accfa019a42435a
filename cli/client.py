"""The HTTP client of the commands."""

import contextlib
import ipaddress
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote, urlsplit

import httpx

from cli.errors import INVALID, ApiError, CliError, ServerAway

DEFAULT_URL = "http://127.0.0.1:8000"
PAGE_SIZE = 200
RETRY_PAUSE_S = 0.5
SEND_TIMEOUT_S = 600.0
"""Longest silence while files are sent, checked and stored."""


def server_url() -> str:
    """Where the server is: REGATTA_URL, or the address `regatta up` uses."""
    return (os.environ.get("REGATTA_URL") or DEFAULT_URL).rstrip("/")


class Client:
    """Calls one Regatta server.

    Every method raises `ServerAway` when nothing answers and `ApiError` for an answer that is not a success.
    """

    def __init__(self, url: str | None = None, timeout_s: float = 30.0) -> None:
        self.url = url or server_url()
        try:
            # A proxy of the environment cannot reach the loopback address of this machine.
            self._http = httpx.Client(
                base_url=self.url,
                timeout=timeout_s,
                trust_env=not _is_loopback(self.url),
                headers=_key(),
                follow_redirects=True,
            )
        except httpx.InvalidURL as error:
            raise ServerAway(self.url, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return self._json("GET", path, params=_given(params))

    def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        return self._json("POST", path, json=body, headers=headers)

    def send_files(
        self,
        path: str,
        files: Sequence[tuple[str, tuple[str, IO[bytes], str]]],
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """POST a form of files, each (field, (name, content, media type)) and read while it is sent."""
        timeout = httpx.Timeout(SEND_TIMEOUT_S, connect=self._http.timeout.connect)
        return self._json("POST", path, params=_given(params), files=files, timeout=timeout)

    def put(self, path: str, body: object = None, params: Mapping[str, Any] | None = None) -> Any:
        return self._json("PUT", path, json=body, params=_given(params))

    def patch(self, path: str, body: object = None) -> Any:
        return self._json("PATCH", path, json=body)

    def delete(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return self._json("DELETE", path, params=_given(params))

    def items(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Every item of a paginated list, page after page."""
        query = {"limit": PAGE_SIZE} | dict(params or {})
        while True:
            page = self.get(path, query)
            yield from page["items"]
            if not page.get("next_cursor"):
                return
            query["cursor"] = page["next_cursor"]

    def get_patiently(self, path: str, patience_s: float = 60.0) -> Any:
        """As `get`, but lives through a server that is away or restarting for up to `patience_s` seconds."""
        give_up = time.monotonic() + patience_s
        while True:
            try:
                return self.get(path)
            except (ServerAway, ApiError) as error:
                if not is_passing(error) or time.monotonic() > give_up:
                    raise
                time.sleep(RETRY_PAUSE_S)

    @contextlib.contextmanager
    def stream(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """An answer whose body is read while it arrives."""
        timeout = httpx.Timeout(self._http.timeout.connect, read=read_timeout_s or self._http.timeout.read)
        try:
            with self._http.stream(
                "GET", path, params=_given(params), headers=headers, timeout=timeout
            ) as response:
                if not response.is_success:
                    response.read()
                    raise _refusal(response)
                yield response
        except httpx.TransportError as error:
            raise ServerAway(self.url, _reason(error)) from error

    def _json(self, method: str, path: str, **options: Any) -> Any:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise ServerAway(self.url, _reason(error)) from error
        if not response.is_success:
            raise _refusal(response)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise _refusal(response) from error


def _key() -> dict[str, str]:
    """The header that shows the key of REGATTA_API_KEY, if there is one."""
    key = os.environ.get("REGATTA_API_KEY", "").strip()
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()):
        raise CliError("REGATTA_API_KEY: the value is no key; it reads rgt_<prefix>_<random>.", INVALID)
    return {"Authorization": f"Bearer {key}"}


def job_path(job: str, *parts: str) -> str:
    """The path of a job, or of something that belongs to it; every part is one path segment."""
    return path_of("jobs", job, *parts)


def path_of(*parts: str) -> str:
    """The path with these segments."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def is_passing(error: ServerAway | ApiError) -> bool:
    """Whether the same call may well succeed a moment later."""
    return isinstance(error, ServerAway) or error.status in (429, 500, 502, 503, 504)


def _refusal(response: httpx.Response) -> ApiError:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if isinstance(problem, dict):
        return ApiError(response.status_code, problem)
    kind = response.headers.get("content-type", "no content type")
    title = f"HTTP {response.status_code} from {response.url}"
    return ApiError(response.status_code, {"title": title, "detail": f"the answer is not JSON ({kind})"})


def _reason(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None and value != []}


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
