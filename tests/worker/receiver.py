"""A receiver of webhooks on loopback, which answers as a test tells it to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """What came, and what is answered."""

    port: int = 0
    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    code: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    drips: bool = False
    """A header comes a character at a time, and has no end."""
    gate: threading.Event = field(default_factory=threading.Event)
    """Answers wait for it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for _, headers, _ in self.received]


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """A server that listens while the context lasts."""
    receiver = Receiver()
    receiver.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.received.append((self.path, headers, body))
            if receiver.drips:
                self._drip()
                return
            receiver.gate.wait(60)
            with suppress(OSError):
                self.send_response(receiver.code)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(receiver.body)

        def _drip(self) -> None:
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.0 200 OK\r\nX-Long: ")
                while not receiver.gate.wait(0.1):
                    self.wfile.write(b".")

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.gate.set()
        server.shutdown()
        server.server_close()
