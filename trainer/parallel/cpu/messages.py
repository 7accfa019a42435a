"""Sends and receives of gloo groups through the mailbox."""

from typing import Any

import paddle
from paddle import Tensor
from paddle.base import core
from paddle.distributed.communication import group as paddle_groups

from trainer.parallel.cpu.collectives import Done
from trainer.parallel.cpu.mailbox import Mailbox, Receive


class _Post:
    """The mailbox of this process, what it knows of groups, and the batch of receives being collected."""

    def __init__(self) -> None:
        self._mailbox: Mailbox | None = None
        self._groups: dict[int, Any] = {}
        self.batches: list[list[Receive]] = []

    @property
    def mailbox(self) -> Mailbox:
        """Made when first asked for: its store exists only after `fleet.init`."""
        if self._mailbox is None:
            self._mailbox = Mailbox()
        return self._mailbox

    def group(self, process_group: Any) -> Any:
        """The Python group, which knows number and global ranks, of a process group."""
        if id(process_group) not in self._groups:
            known = paddle_groups._GroupManager.group_map_by_id.values()
            self._groups.update({id(group.process_group): group for group in known})
        return self._groups[id(process_group)]


def add_messages() -> None:
    """Replace send, receive, their partial forms and coalescing of gloo groups."""
    post = _Post()

    def send(group: Any, tensor: Tensor, receiver: int, sync_op: bool = True) -> Done:
        known = post.group(group)
        post.mailbox.send(known.id, known.ranks[receiver], tensor)
        return Done()

    def receive(group: Any, tensor: Tensor, sender: int, sync_op: bool = True) -> Done | Receive:
        known = post.group(group)
        task = post.mailbox.receive(known.id, known.ranks[sender], tensor)
        if post.batches:
            post.batches[-1].append(task)
            return Done() if sync_op else task
        if sync_op:
            task.wait()
        return task

    def send_part(
        group: Any, tensor: Tensor, receiver: int, parts: int, index: int, sync_op: bool = True
    ) -> Done:
        return send(group, tensor.detach().reshape([parts, -1])[index], receiver, sync_op)

    def receive_part(
        group: Any, tensor: Tensor, sender: int, parts: int, index: int, sync_op: bool = True
    ) -> Done | Receive:
        return receive(group, _part_in_place(tensor, parts, index), sender, sync_op)

    def start_coalescing(group: Any) -> None:
        post.batches.append([])

    def end_coalescing(group: Any, tasks: Any = None) -> None:
        for task in post.batches.pop():
            task.wait()

    methods: Any = core.ProcessGroupGloo
    methods.send, methods.recv = send, receive
    methods.send_partial, methods.recv_partial = send_part, receive_part
    methods._start_coalescing, methods._end_coalescing = start_coalescing, end_coalescing


def _part_in_place(tensor: Tensor, parts: int, index: int) -> Tensor:
    """Part number `index` of the flat tensor, in its memory.

    Shape and memory are set by hand, because a reshaped tensor is a copy where Paddle makes no strided views.
    """
    size = tensor.size // parts
    whole: Any = tensor
    flat: Any = paddle.empty([0], dtype=tensor.dtype)
    whole._share_buffer_to(flat)
    flat.get_tensor()._set_dims([tensor.size])
    return flat._slice(index * size, (index + 1) * size)
