"""Finds out who sends a request, before its body is read and whatever it asks for (RFC 6750).

On a server that wants keys every address needs one but those of `OPEN`. On one that wants none, everybody is
`LOCAL`; a key of ours that is shown all the same has to be right, and counts. Any other text says nothing
there: OpenAI's clients always send one.
"""

import logging
from functools import partial

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from api.keyring import Keyring
from api.principal import LOCAL, REALM, Principal
from api.problems import ApiError, ProblemResponse
from store.keys import BEGINNING

logger = logging.getLogger(__name__)

OPEN = ("/", "/healthz", "/readyz", "/docs", "/docs/oauth2-redirect")
"""Addresses that are read without a key: whether the server lives, and pages that hold nothing of a user."""
OPEN_FOLDERS = ("/static/", "/docs/static/")


class Authentication:
    """ASGI middleware: sets `request.state.principal`, or answers 401."""

    def __init__(self, app: ASGIApp, keyring: Keyring, required: bool) -> None:
        self.app = app
        self._keyring = keyring
        self._required = required

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            principal = await self._principal(scope)
        except ApiError as refusal:
            await ProblemResponse(refusal)(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        await self.app(scope, receive, send)

    async def _principal(self, scope: Connection) -> Principal:
        if is_open(scope["method"], scope["path"]):
            return LOCAL
        given = Headers(scope=scope).getlist("authorization")
        if not given:
            if self._required:
                raise _unauthenticated("This server wants a key: send Authorization: Bearer <key>.")
            return LOCAL
        text = _bearer(given)
        if not (self._required or text.startswith(BEGINNING)):
            return LOCAL
        principal = self._keyring.remembered(text)
        if principal is None:
            principal = await anyio.to_thread.run_sync(partial(self._keyring.look_up, text))
        if principal is None:
            raise _unauthenticated(
                "The key is unknown, has expired or was revoked; an administrator can make a new one.",
                error="invalid_token",
            )
        return principal


def is_open(method: str, path: str) -> bool:
    """Whether anybody may read this address."""
    return method in ("GET", "HEAD") and (path in OPEN or path.startswith(OPEN_FOLDERS))


def _bearer(values: list[str]) -> str:
    if len(values) > 1:
        raise _unauthenticated("Got more than one Authorization header; send one.", error="invalid_request")
    scheme, _, text = values[0].partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthenticated("Got another Authorization scheme; send Authorization: Bearer <key>.")
    return text.strip(" ")


def _unauthenticated(detail: str, error: str = "") -> ApiError:
    challenge = f'{REALM}, error="{error}"' if error else REALM
    return ApiError("unauthenticated", detail, headers={"WWW-Authenticate": challenge})
