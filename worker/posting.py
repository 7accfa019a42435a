"""One POST to a place that a user has named: to the address that was judged, in bounded time, no further."""

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence

from store.targets import Address, Networks, Refused, Target, read_target, resolve
from store.webhooks import Answer

CONNECT_S = 5.0
TOTAL_S = 15.0
"""From the first connection to the end of the answer, however slowly that drips."""
MOST_ANSWER_BYTES = 1 << 16
"""An answer is read so far, to let the receiver end it in peace, and ignored."""
MOST_ADDRESSES = 3


def post(url: str, body: bytes, headers: Mapping[str, str], allowed: Networks) -> Answer:
    """Send the body and tell the status code, or why there is none. No redirect is followed, and no proxy of
    the environment is used."""
    try:
        target = read_target(url, allowed)
        addresses = resolve(target, allowed)
    except Refused as refused:
        return Answer(error=str(refused))
    connection = _Connection(target, addresses[:MOST_ADDRESSES])
    alarm = threading.Timer(TOTAL_S, connection.abort)
    alarm.daemon = True
    alarm.start()
    try:
        connection.request("POST", target.path, body, {"Host": target.authority, **headers})
        answer = connection.getresponse()
        if connection.aborted:  # what looks like the end of its headers was this
            raise TimeoutError
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer.read(MOST_ANSWER_BYTES)
        return Answer(answer.status, "" if 200 <= answer.status < 300 else f"answered {answer.status}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(error=_told(error, connection.aborted))
    finally:
        alarm.cancel()
        connection.close()


class _Connection(http.client.HTTPConnection):
    """A connection to one of the given addresses, whatever the host's name may lead to by now."""

    def __init__(self, target: Target, addresses: Sequence[Address]) -> None:
        super().__init__(target.host, target.port, timeout=TOTAL_S)
        self.aborted = False
        self._target = target
        self._addresses = addresses

    def connect(self) -> None:
        sock = self._connected()
        sock.settimeout(TOTAL_S)
        self.sock = sock
        if self._target.scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=self._target.host)

    def _connected(self) -> socket.socket:
        failure: OSError | None = None
        for address in self._addresses:
            if self.aborted:
                break
            try:
                return socket.create_connection((str(address), self._target.port), CONNECT_S)
            except OSError as error:
                failure = error
        raise failure or TimeoutError

    def abort(self) -> None:
        """End whatever this connection waits for; called by another thread."""
        self.aborted = True
        sock = self.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _told(error: Exception, aborted: bool) -> str:
    if aborted or isinstance(error, TimeoutError):
        return f"no answer within {TOTAL_S:g} seconds"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason}"
    if isinstance(error, http.client.HTTPException):
        return "the answer was not HTTP"
    return f"the connection failed: {getattr(error, 'strerror', None) or type(error).__name__}"
