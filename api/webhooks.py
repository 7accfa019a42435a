"""From the `webhook` of a request to what is stored of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from api.problems import ApiError
from api.schemas.webhooks import EventType, WebhookRequest
from store.secretbox import NoSecretKey, open_box
from store.settings import Settings
from store.targets import Networks, Refused, read_target
from store.webhooks import SECRET_BYTES, NewWebhook, new_secret, secret_key
from trainer.config.problems import Problem


@dataclass(frozen=True)
class Prepared:
    """A webhook that can be stored, and its secret where the server has made it."""

    new: NewWebhook
    made_secret: str | None


def webhook_problems(request: WebhookRequest, allowed: Networks) -> Iterator[Problem]:
    """What is wrong with it, as far as that can be told without looking the host up."""
    try:
        read_target(request.url, allowed)
    except Refused as refused:
        loc = ("body", "webhook", "url")
        yield Problem(loc, str(refused), "Send the https address of a receiver that the internet reaches.")
    if request.secret is not None and secret_key(request.secret) is None:
        least, most = SECRET_BYTES
        msg = f"expected whsec_ followed by {least} to {most} bytes in base64"
        yield Problem(("body", "webhook", "secret"), msg, "Leave it out to get a random one.")


def prepare(settings: Settings, request: WebhookRequest | None) -> Prepared | None:
    """What to store of a checked request, with a random secret when it has none.

    Raises: ApiError (503) on a server that has no key to keep a secret with.
    """
    if request is None:
        return None
    secret = request.secret or new_secret()
    try:
        encrypted = open_box(settings).encrypt(secret)
    except NoSecretKey as error:
        raise ApiError("unavailable", f"No webhook can be kept: {error}.") from error
    events = tuple(dict.fromkeys(request.events or get_args(EventType)))
    return Prepared(NewWebhook(request.url, encrypted, events), None if request.secret else secret)
