"""What every request passes first: host and origin checks against web pages of others, and security headers.

The service listens on loopback without keys, so any page in the user's browser could send it requests. Two
attacks are refused: a request from another site's page (Sec-Fetch-Site, Origin), and DNS rebinding, where
another site's name is made to resolve to this machine (Host).
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import ApiError, ProblemResponse

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
PAGES = "/docs"
PAGES_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
)


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        self.app = app
        self.allowed_hosts = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_security_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        app = self.app if refusal is None else ProblemResponse(refusal)
        await app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> ApiError | None:
        host = headers.get("host", "")
        if not self._answers_for(host):
            detail = (
                f"Got Host {host!r}; add the name to REGATTA_ALLOWED_HOSTS if this server is reached by it."
            )
            return ApiError("misdirected", detail)
        if method in SAFE_METHODS:
            return None
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none"):
            return ApiError(
                "cross-site", f"Got Sec-Fetch-Site {site!r}: a page of another site sent this request."
            )
        origin = headers.get("origin")
        if origin is not None and _netloc(origin).lower() != host.lower():
            return ApiError(
                "cross-site", f"Got Origin {origin!r} for host {host!r}: another site sent this request."
            )
        return None

    def _answers_for(self, host: str) -> bool:
        """Addresses cannot be rebound and are always right; names must be known."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return (
            _is_address(name)
            or name == "localhost"
            or name.endswith(".localhost")
            or name in self.allowed_hosts
        )


def _netloc(origin: str) -> str:
    """Host and port of an origin; empty for what is none, such as `null`."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _add_security_headers(headers: MutableHeaders, path: str) -> None:
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
    policy = PAGES_POLICY if path.startswith(PAGES) else CONTENT_POLICY
    headers.setdefault("Content-Security-Policy", policy)
