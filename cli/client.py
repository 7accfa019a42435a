"""The HTTP client of the commands: `regatta_client`, with failures told as commands tell them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Self

import httpx

import regatta_client
from cli.errors import INVALID, ApiError, CliError, ServerAway
from regatta_client.calls import SEND_TIMEOUT_S
from regatta_client.connection import PAGE_SIZE, Connection, path_of

__all__ = ["PAGE_SIZE", "SEND_TIMEOUT_S", "Client", "job_path", "path_of", "told"]


@contextmanager
def told() -> Iterator[None]:
    """Raises what a command can end with for what the client raises inside the block."""
    try:
        yield
    except regatta_client.ServerAwayError as error:
        raise ServerAway(error.url, error.cause) from error
    except regatta_client.ApiError as error:
        raise ApiError(error.status, error.problem) from error


class Client:
    """Calls one Regatta server.

    Every method raises `ServerAway` when nothing answers and `ApiError` for an answer that is not a success.
    """

    def __init__(self, url: str | None = None, timeout_s: float = 30.0) -> None:
        try:
            with told():
                self.connection = Connection(url, timeout_s=timeout_s, retries=0)
        except ValueError as error:
            msg = "REGATTA_API_KEY: the value is no key; it reads rgt_<prefix>_<random>."
            raise CliError(msg, INVALID) from error
        self.url = self.connection.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return self._json("GET", path, params=params)

    def post(
        self,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._json("POST", path, json=body, headers=headers, params=params)

    def send_files(
        self,
        path: str,
        files: Sequence[tuple[str, tuple[str, IO[bytes], str]]],
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """POST a form of files, each (field, (name, content, media type)) and read while it is sent."""
        return self._json("POST", path, params=params, files=files, timeout_s=SEND_TIMEOUT_S)

    def put(self, path: str, body: object = None, params: Mapping[str, Any] | None = None) -> Any:
        return self._json("PUT", path, json=body, params=params)

    def patch(self, path: str, body: object = None) -> Any:
        return self._json("PATCH", path, json=body)

    def delete(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return self._json("DELETE", path, params=params)

    def items(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Every item of a paginated list, page after page."""
        with told():
            yield from self.connection.items(path, params)

    @contextmanager
    def stream(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[httpx.Response]:
        """An answer whose body is read while it arrives."""
        with told(), self.connection.stream(path, params, headers) as response:
            yield response

    def _json(self, method: str, path: str, **options: Any) -> Any:
        with told():
            return self.connection.request(method, path, **options)


def job_path(job: str, *parts: str) -> str:
    """The path of a job, or of something that belongs to it; every part is one path segment."""
    return path_of("jobs", job, *parts)
