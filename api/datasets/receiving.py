"""Reading the body of an upload: piece by piece, each checked in a thread, never as a whole."""

from collections.abc import AsyncIterator, Callable
from email.message import Message
from functools import partial

import anyio
from starlette.requests import ClientDisconnect, Request

from api.datasets.bodies import FORM, LINES, FormBody, LinesBody, malformed
from api.datasets.upload import BEFORE_THE_END, Upload, too_large
from api.problems import ApiError
from api.service import Service

BATCH = 1 << 20
SILENCE_S = 60.0
"""How long a client may send nothing."""


async def receive(
    request: Request, service: Service, upload: Upload, form: Callable[[Upload, bytes], FormBody] = FormBody
) -> None:
    """Give the whole body to the upload.

    Args:
        form: what reads a form with this boundary.

    Raises:
        ApiError: 415 for another media type or encoding; 400 for a body that is cut or no form; 408 for one
            that does not go on; 413 for one that is too large; 422 with everything that is wrong with the
            data; 507 without room for them.
    """
    body = _body(request, upload, form)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > service.settings.max_dataset_bytes + BATCH:
        raise too_large(service.settings.max_dataset_bytes)
    async for batch in _batches(request):
        await service.take_in(partial(body.feed, batch))
    await service.take_in(body.finish)


def _body(
    request: Request, upload: Upload, form: Callable[[Upload, bytes], FormBody]
) -> FormBody | LinesBody:
    header = Message()
    given = request.headers.get("content-type")
    header["content-type"] = given or ""
    media_type = header.get_content_type()
    encoding = request.headers.get("content-encoding", "identity").lower()
    if media_type in LINES and encoding in ("identity", "gzip"):
        return LinesBody(upload)
    if given is None or media_type not in (FORM, *LINES):
        raise _unsupported(f"Got Content-Type {given or 'none'!r}, expected {FORM!r} or {LINES[0]!r}.")
    if encoding != "identity":
        raise _unsupported(
            f"Got Content-Encoding {encoding!r}; send the body as it is, with files packed by gzip."
        )
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str) or not boundary or not boundary.isascii() or len(boundary) > 70:
        raise malformed("The Content-Type of the form has no boundary that can be used.")
    return form(upload, boundary.encode())


def _unsupported(detail: str) -> ApiError:
    headers = {"Accept-Post": f"{FORM}, {LINES[0]}"} | BEFORE_THE_END
    return ApiError("unsupported-media-type", detail, headers=headers)


async def _batches(request: Request) -> AsyncIterator[bytes]:
    batch = bytearray()
    stream = request.stream()
    while True:
        try:
            with anyio.fail_after(SILENCE_S):
                piece = await anext(stream, None)
        except TimeoutError:
            detail = f"Nothing came for {SILENCE_S:.0f} s; nothing was stored. Send it again."
            raise ApiError("timeout", detail, headers=BEFORE_THE_END) from None
        except ClientDisconnect as error:
            raise malformed("The connection ended before the body did.") from error
        if piece is None:
            break
        batch += piece
        if len(batch) >= BATCH:
            yield bytes(batch)
            batch.clear()
    if batch:
        yield bytes(batch)
