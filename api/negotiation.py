"""Which of the media types on offer a client gets (RFC 9110, Accept)."""

from collections.abc import Sequence

from starlette.requests import Request

from api.problems import ApiError

JSON = "application/json"
TEXT = "text/plain"
EVENTS = "text/event-stream"


def negotiate(request: Request, offers: Sequence[str], *, follow: bool | None = None) -> str:
    """The offer that the client likes best; the first of several that it likes equally.

    Args:
        follow: what `?follow=` says; true asks for an event stream, false forbids it.

    Raises:
        ApiError: 406 when the client accepts none of them.
    """
    if follow:
        return EVENTS
    offers = [offer for offer in offers if offer != EVENTS or follow is None]
    header = ",".join(request.headers.getlist("accept")) or "*/*"
    wishes = dict(_wish(part) for part in header.split(","))
    liking = {offer: _liking(offer, wishes) for offer in offers}
    best = max(offers, key=lambda offer: liking[offer])
    if liking[best] <= 0:
        raise ApiError("not-acceptable", f"Got Accept {header!r}; on offer: {', '.join(offers)}.")
    return best


def _wish(part: str) -> tuple[str, float]:
    media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return media_type, float(parameter[2:])
            except ValueError:
                return media_type, 0.0
    return media_type, 1.0


def _liking(offer: str, wishes: dict[str, float]) -> float:
    for pattern in (offer, offer.partition("/")[0] + "/*", "*/*"):
        if pattern in wishes:
            return wishes[pattern]
    return 0.0
