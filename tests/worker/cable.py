"""A connection to a server that a test can cut and mend."""

import contextlib
import selectors
import socket
import threading
from pathlib import Path


class Cable:
    """Passes a unix socket on to another one until it is cut: then it refuses, and what was open closes."""

    def __init__(self, path: Path, target: Path) -> None:
        self._path = path
        self._target = target
        self._ends: list[socket.socket] = []
        self.mend()

    def mend(self) -> None:
        """Listen, and pass on what comes."""
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Close everything."""
        self._path.unlink(missing_ok=True)
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._target))
                self._ends += [near, far]
                threading.Thread(target=_pass_on, args=(near, far), daemon=True).start()


def _pass_on(near: socket.socket, far: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)
        while True:
            for key, _ in selector.select():
                source, sink = key.fileobj, key.data
                data = source.recv(65536)  # pyright: ignore[reportAttributeAccessIssue]
                if not data:
                    near.close()
                    far.close()
                    return
                sink.sendall(data)
