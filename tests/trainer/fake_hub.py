"""A Hugging Face hub of a few models, as a real HTTP server on the loopback interface."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """What the server offers and what it was asked.

    Attributes:
        models: repository → file name → content.
        gated: repositories that only the holder of `token` may read.
        status: answered to everything when it is not 200.
        requests: method and path of every request; `tokens` the tokens that came with them.
    """

    models: Mapping[str, Mapping[str, bytes]]
    gated: frozenset[str] = frozenset()
    token: str = "hf_secretsecretsecret"
    status: int = 200
    requests: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    url: str = ""

    @property
    def fetched(self) -> set[str]:
        """Names of the files whose content was asked for."""
        gets = [line.split(" ")[1] for line in self.requests if line.startswith("GET ")]
        return {path.rpartition("/")[2] for path in gets if "/resolve/" in path}


def model_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    """The server; its address is in `hub.url`."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join(timeout=10)


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        hub = self.hub
        hub.requests.append(f"{self.command} {path}")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token:
            hub.tokens.add(token)
        if hub.status != 200:
            return self._send(hub.status, b"")
        parts = path.strip("/").removeprefix("api/models/").split("/")
        repository = "/".join(parts[:2])
        files = hub.models.get(repository)
        if files is None:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        if repository in hub.gated and token != hub.token:
            return self._send(403 if token else 401, b"", {"X-Error-Code": "GatedRepo"})
        kind, revision = parts[2], parts[3]
        if revision not in ("main", "v2", COMMIT):
            return self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if kind == "resolve":
            return self._file(files, "/".join(parts[4:]))
        return self._json(self._description(repository, files, kind))

    def _description(self, repository: str, files: Mapping[str, bytes], kind: str) -> object:
        if kind == "tree":
            return [
                {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}
                for name, content in files.items()
            ]
        siblings = [{"rfilename": name} for name in files]
        return {"id": repository, "sha": COMMIT, "private": False, "siblings": siblings}

    def _file(self, files: Mapping[str, bytes], name: str) -> None:
        if name not in files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        content = files[name]
        return self._send(200, content, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": COMMIT})

    def _json(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def _oid(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
