"""Messages between any two ranks over TCP, buffered at the receiver.

gloo pairs a send with a receive by counting the operations of the group, so that both sides must have done
the same number of them, which pipelines of more than two stages do not; and a send blocks until it is
received, so that two ranks that both send first wait for ever. Here a send never waits for the receiver, and
messages from one rank to another in one group arrive in the order they were sent: what is right with the
grouped calls of NCCL is right here.
"""

import queue
import socket
import struct
import threading
from typing import Any

import numpy as np
import paddle
import paddle.distributed as distributed
from paddle import Tensor
from paddle.base import core

from trainer.parallel.cpu.collectives import write
from trainer.parallel.cpu.groups import TIMEOUT_S, own_host, split_address

_HEADER = struct.Struct("!iiq")  # sender's global rank, group, bytes that follow
_BACKLOG = 128

#: Whose messages, in which group: the group's number and the sender's global rank.
Address = tuple[int, int]


class Receive:
    """A receive that was asked for; the message is in `tensor` after `wait`."""

    def __init__(self, mailbox: "Mailbox", address: Address, tensor: Tensor) -> None:
        self._mailbox, self.address, self.tensor, self.done = mailbox, address, tensor, False

    def wait(self, *_: Any) -> bool:
        """Wait for the message, after those that were asked for earlier.

        Raises:
            TimeoutError: it did not come within `TIMEOUT_S`.
            ConnectionError: the sender ended.
            RuntimeError: it has another number of elements than the tensor.
        """
        while not self.done:
            self._mailbox.complete_oldest(self.address)
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """Whether the message is in the tensor."""
        return self.done


class Mailbox:
    """All messages from and to this rank. Addresses are exchanged through the store of the default group."""

    def __init__(self) -> None:
        self._rank = distributed.get_rank()
        self._store = core.create_or_get_global_tcp_store()
        self._lock = threading.Lock()
        self._boxes: dict[Address, queue.SimpleQueue[bytes | None]] = {}
        self._gone: set[int] = set()
        self._asked: dict[Address, list[Receive]] = {}
        self._peers: dict[int, socket.socket] = {}
        self._server = socket.create_server((own_host(), 0), backlog=_BACKLOG)
        port = self._server.getsockname()[1]
        self._store.set(_key(self._rank), f"{own_host()}:{port}")
        threading.Thread(target=self._accept, daemon=True).start()

    def send(self, group: int, receiver: int, tensor: Tensor) -> None:
        """Send a tensor to the rank `receiver` (global); it is copied, and need not be kept."""
        payload = np.ascontiguousarray(tensor.numpy()).tobytes()
        peer = self._peers.get(receiver)
        if peer is None:
            address = split_address(self._store.get(_key(receiver)).decode())
            peer = self._peers[receiver] = socket.create_connection(address, TIMEOUT_S)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(_HEADER.pack(self._rank, group, len(payload)) + payload)

    def receive(self, group: int, sender: int, tensor: Tensor) -> Receive:
        """Ask for the next message of the rank `sender` (global), to be put in `tensor`."""
        task = Receive(self, (group, sender), tensor)
        self._asked.setdefault(task.address, []).append(task)
        return task

    def complete_oldest(self, address: Address) -> None:
        """Wait for the message of the receive that was asked for first; raises as `Receive.wait` does."""
        task = self._asked[address].pop(0)
        try:
            data = self._box(address).get(timeout=TIMEOUT_S)
        except queue.Empty:
            raise TimeoutError(f"no message from rank {address[1]} in {TIMEOUT_S} s") from None
        if data is None:
            self._box(address).put(None)  # for whoever asks next
            raise ConnectionError(f"rank {address[1]} closed its connection")
        array = np.frombuffer(data, dtype=paddle.empty([0], dtype=task.tensor.dtype).numpy().dtype)
        if array.size != task.tensor.size:
            raise RuntimeError(f"received {array.size} elements, expected {task.tensor.size}")
        write(task.tensor, paddle.to_tensor(array))
        task.done = True

    def _box(self, address: Address) -> "queue.SimpleQueue[bytes | None]":
        with self._lock:
            if address not in self._boxes:
                self._boxes[address] = queue.SimpleQueue()
                if address[1] in self._gone:
                    self._boxes[address].put(None)
            return self._boxes[address]

    def _accept(self) -> None:
        while True:
            connection, _ = self._server.accept()
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        """Sort the messages of one sender into boxes until it ends; None in a box tells that it has."""
        sender = -1
        try:
            with connection, connection.makefile("rb") as stream:
                while header := stream.read(_HEADER.size):
                    sender, group, size = _HEADER.unpack(header)
                    data = stream.read(size)
                    if len(data) < size:
                        break
                    self._box((group, sender)).put(data)
        except OSError:  # the connection was reset: the same as its end
            pass
        with self._lock:
            self._gone.add(sender)
            for address, box in self._boxes.items():
                if address[1] == sender:
                    box.put(None)


def _key(rank: int) -> str:
    return f"regatta/mailbox/{rank}"
