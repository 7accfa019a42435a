"""A connection to a server that a test can cut, silence and mend."""

import contextlib
import selectors
import socket
import threading
from pathlib import Path


class Cable:
    """Passes a unix socket on to another one.

    Cut, it refuses, and what was open closes. Silenced, it takes everything and passes nothing on, as a
    network does that loses all packets; what was open then closes when it is mended.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self._path = path
        self._target = target
        self._ends: set[socket.socket] = set()
        self._silent = threading.Event()
        self.mend()

    def mend(self) -> None:
        """Listen, and pass on what comes."""
        if self._silent.is_set():
            self.cut()
            self._silent.clear()
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

    def silence(self) -> None:
        """Pass nothing on any more, without a word."""
        self._silent.set()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        """Pass one connection on; that of a server that is away closes at once."""
        far = socket.socket(socket.AF_UNIX)
        self._ends |= {near, far}
        with contextlib.suppress(OSError, ValueError):
            far.connect(str(self._target))
            self._pass_on(near, far)
        for end in (near, far):
            end.close()
            self._ends.discard(end)

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(65536)  # pyright: ignore[reportAttributeAccessIssue]
                    if not data:
                        return
                    if not self._silent.is_set():
                        key.data.sendall(data)
