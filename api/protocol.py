"""HTTP/1.1 as uvicorn speaks it with httptools, which puts no end to what comes between bodies."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 64 * 1024
"""Bytes of a request line with its headers, or of what stands between the parts of a body."""

_REFUSAL = b"The request's headers are too long.\n"


class BoundedHttp(HttpToolsProtocol):
    """Answers 431 to a head that does not end, and closes the connection."""

    _pending = 0
    _progress = False

    def data_received(self, data: bytes) -> None:
        self._progress = False
        super().data_received(data)
        self._pending = 0 if self._progress else self._pending + len(data)
        if self._pending > LONGEST_HEAD:
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                b"Content-Type: text/plain; charset=utf-8\r\n"
                b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_REFUSAL), _REFUSAL)
            )
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._progress = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progress = True
        super().on_message_complete()
