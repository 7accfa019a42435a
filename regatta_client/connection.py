"""HTTP connections to one server: calls that are repeated when that is safe, and streams."""

import asyncio
import ipaddress
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from regatta_client.errors import ApiError, RegattaError, ServerAwayError, is_passing, refusal

DEFAULT_URL = "http://127.0.0.1:8000"
PAGE_SIZE = 200
SAFE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Methods that may be repeated; others only with an Idempotency-Key or where the call says so."""
PAUSES_S = (0.5, 1.0, 2.0, 4.0)
LONGEST_PAUSE_S = 30.0


def server_url() -> str:
    """Where the server is: REGATTA_URL, or the address `regatta up` uses."""
    return (os.environ.get("REGATTA_URL") or DEFAULT_URL).rstrip("/")


def path_of(*parts: str) -> str:
    """The path of a thing; every part is one segment of it."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


class _Settings:
    """What both kinds of connection are made of."""

    def __init__(self, url: str | None, api_key: str | None, timeout_s: float, retries: int) -> None:
        self.url = (url or server_url()).rstrip("/")
        self.retries = retries
        key = (os.environ.get("REGATTA_API_KEY", "") if api_key is None else api_key).strip()
        if not (key.isascii() and (not key or key.isprintable())):
            raise ValueError("the API key is none; it reads rgt_<prefix>_<random>")
        self.options: dict[str, Any] = {
            "base_url": self.url,
            "timeout": timeout_s,
            # a proxy of the environment cannot reach the loopback address of this machine
            "trust_env": not _is_loopback(self.url),
            "headers": {"Authorization": f"Bearer {key}"} if key else {},
            "follow_redirects": True,
        }

    def pause_s(self, error: RegattaError, tried: int, repeat: bool) -> float:
        """How long to rest before the call is repeated. Raises the error when it is not."""
        if not repeat or tried >= self.retries or not is_passing(error):
            raise error
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        return min(asked or PAUSES_S[min(tried, len(PAUSES_S) - 1)], LONGEST_PAUSE_S)


class Connection:
    """Calls one server.

    Every method raises `ServerAwayError` when nothing answers, and `ApiError` for an answer that is not a
    success.

    Args:
        url: default: REGATTA_URL, else the address `regatta up` uses.
        api_key: default: REGATTA_API_KEY; empty: none.
        retries: how often a call is repeated that may well succeed then, where repeating is safe.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, timeout_s: float = 30.0, retries: int = 2
    ) -> None:
        self._settings = _Settings(url, api_key, timeout_s, retries)
        self.url = self._settings.url
        try:
            self._http = httpx.Client(**self._settings.options)
        except httpx.InvalidURL as error:
            raise ServerAwayError(self.url, error) from error

    def close(self) -> None:
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool | None = None,
        timeout_s: float | None = None,
        **body: Any,
    ) -> Any:
        """The JSON of an answer; None for one without content.

        Args:
            repeat: whether the call may be repeated; default: where its method or its key makes that safe.
            body: `json` or `files`, as httpx takes them.
        """
        options = _request(params, headers, body, timeout_s, self._http.timeout)
        safe = may_repeat(method, headers) if repeat is None else repeat
        tried = 0
        while True:
            try:
                return self._once(method, path, options)
            except (ServerAwayError, ApiError) as error:
                time.sleep(self._settings.pause_s(error, tried, safe))
                tried += 1

    def _once(self, method: str, path: str, options: Mapping[str, Any]) -> Any:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise ServerAwayError(self.url, _reason(error)) from error
        return _content(response)

    def items(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Every item of a paginated list, page after page."""
        query = {"limit": PAGE_SIZE} | dict(params or {})
        while True:
            page = self.request("GET", path, params=query)
            yield from page["items"]
            if not page.get("next_cursor"):
                return
            query["cursor"] = page["next_cursor"]

    @contextmanager
    def stream(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """An answer whose body is read while it arrives."""
        options = _request(params, headers, {}, read_timeout_s, self._http.timeout)
        try:
            with self._http.stream("GET", path, **options) as response:
                if not response.is_success:
                    response.read()
                    raise refusal(response)
                yield response
        except httpx.TransportError as error:
            raise ServerAwayError(self.url, _reason(error)) from error


class AsyncConnection:
    """`Connection` for asyncio."""

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, timeout_s: float = 30.0, retries: int = 2
    ) -> None:
        self._settings = _Settings(url, api_key, timeout_s, retries)
        self.url = self._settings.url
        try:
            self._http = httpx.AsyncClient(**self._settings.options)
        except httpx.InvalidURL as error:
            raise ServerAwayError(self.url, error) from error

    async def close(self) -> None:
        await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool | None = None,
        timeout_s: float | None = None,
        **body: Any,
    ) -> Any:
        """See `Connection.request`."""
        options = _request(params, headers, body, timeout_s, self._http.timeout)
        safe = may_repeat(method, headers) if repeat is None else repeat
        tried = 0
        while True:
            try:
                return await self._once(method, path, options)
            except (ServerAwayError, ApiError) as error:
                await asyncio.sleep(self._settings.pause_s(error, tried, safe))
                tried += 1

    async def _once(self, method: str, path: str, options: Mapping[str, Any]) -> Any:
        try:
            response = await self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise ServerAwayError(self.url, _reason(error)) from error
        return _content(response)

    async def items(
        self, path: str, params: Mapping[str, Any] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Every item of a paginated list, page after page."""
        query = {"limit": PAGE_SIZE} | dict(params or {})
        while True:
            page = await self.request("GET", path, params=query)
            for item in page["items"]:
                yield item
            if not page.get("next_cursor"):
                return
            query["cursor"] = page["next_cursor"]

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """An answer whose body is read while it arrives."""
        options = _request(params, headers, {}, read_timeout_s, self._http.timeout)
        try:
            async with self._http.stream("GET", path, **options) as response:
                if not response.is_success:
                    await response.aread()
                    raise refusal(response)
                yield response
        except httpx.TransportError as error:
            raise ServerAwayError(self.url, _reason(error)) from error


def may_repeat(method: str, headers: Mapping[str, str] | None) -> bool:
    """Whether a call does the same when it arrives twice."""
    return method in SAFE or "Idempotency-Key" in (headers or {})


def given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in (params or {}).items() if value is not None and value != []}


def _request(
    params: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None,
    body: Mapping[str, Any],
    read_timeout_s: float | None,
    default: httpx.Timeout,
) -> dict[str, Any]:
    """The arguments of httpx for a call."""
    timeout = default
    if read_timeout_s is not None:
        timeout = httpx.Timeout(read_timeout_s, connect=default.connect)
    return {"params": given(params), "headers": headers, "timeout": timeout, **body}


def _content(response: httpx.Response) -> Any:
    if not response.is_success:
        raise refusal(response)
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError as error:
        raise refusal(response) from error


def _reason(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
