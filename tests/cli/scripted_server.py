"""An HTTP server on loopback that answers what a test tells it to, connection by connection."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


class ScriptedServer(ThreadingHTTPServer):
    """Gives the n-th request the n-th answer, and the last answer to all later ones; keeps what was asked."""

    daemon_threads = True

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, ScriptedServer)
        server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        server.answers[min(len(server.requests), len(server.answers)) - 1](self)

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, ScriptedServer)
        server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    do_PATCH = do_POST  # noqa: N815 - the name that the standard library calls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextlib.contextmanager
def serving(*answers: Answer) -> Iterator[ScriptedServer]:
    server = ScriptedServer(list(answers))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def answer(status: int, body: bytes, content_type: str = "application/json") -> Answer:
    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Type", content_type)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return send


def stream(body: bytes) -> Answer:
    """An event stream that is cut after `body`: the connection closes without a final chunk."""

    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(body)

    return send
