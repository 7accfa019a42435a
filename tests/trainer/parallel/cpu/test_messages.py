"""Collectives and messages between ranks on CPU, against what the ranks are known to hold."""

import gc
import os
from typing import Any

import numpy as np
import paddle
import paddle.distributed as distributed
import pytest
from paddle.distributed.communication import stream
from paddle.distributed.communication.batch_isend_irecv import P2POp, batch_isend_irecv

from tests.ranks import RankError, run_ranks
from trainer.parallel.cpu.mailbox import Mailbox
from trainer.parallel.layout import start
from trainer.parallel.topology import Topology

_ISEND: Any = distributed.isend
_IRECV: Any = distributed.irecv

DTYPES = ("bfloat16", "float16", "float32", "float64", "int32", "int64", "uint8", "bool")


def _start() -> tuple[int, int]:
    """Make this process one of a data-parallel group; returns its rank and the number of ranks."""
    ranks = int(os.environ["PADDLE_TRAINERS_NUM"])
    return start(Topology(data=ranks), seed=1).rank, ranks


def _chain(rounds: int) -> list[float]:
    rank, ranks = _start()
    received = []
    for number in range(rounds):
        tensor = paddle.full([4], 10.0 * number)
        if rank > 0:
            distributed.recv(tensor, rank - 1)
        received.append(float(tensor.numpy()[3]))
        if rank < ranks - 1:
            distributed.send(tensor + 1, rank + 1)
    return received


def _ring() -> float:
    rank, ranks = _start()
    mine, other = paddle.full([3, 5], float(rank)), paddle.zeros([3, 5])
    receive = P2POp(_IRECV, other, (rank - 1) % ranks)
    send = P2POp(_ISEND, mine, (rank + 1) % ranks)
    for task in batch_isend_irecv([receive, send]):
        task.wait()
    return float(other.numpy()[2, 4])


def _dtypes() -> list[tuple[str, float]]:
    rank, ranks = _start()
    received = []
    for name in DTYPES:
        mine, other = paddle.full([2, 3], rank).astype(name), paddle.full([2, 3], 7).astype(name)
        distributed.isend(mine, (rank + 1) % ranks)
        distributed.recv(other, (rank - 1) % ranks)
        received.append((str(other.dtype), float(other.astype("float32").numpy()[1, 2])))
    return received


def _late_waits() -> list[float]:
    rank, ranks = _start()
    for number in range(3):
        distributed.isend(paddle.full([1], float(number)), (rank + 1) % ranks)
    tensors = [paddle.zeros([1]) for _ in range(3)]
    tasks: list[Any] = [distributed.irecv(tensor, (rank - 1) % ranks) for tensor in tensors]
    for task in reversed(tasks):
        task.wait()
    return [float(tensor.numpy()[0]) for tensor in tensors]


def _parts() -> list[list[float]]:
    """Rank 0 sends the second half of its tensor to rank 1, which gives all of it to rank 0 by halves."""
    rank, _ = _start()
    group: Any = distributed.get_group(0)
    group = group.process_group
    tensor = paddle.arange(8, dtype="float32").reshape([2, 4]) + 100.0 * rank
    if rank == 0:
        group.send_partial_on_calc_stream(tensor, 1, 2, 1)
        group.recv_partial_on_calc_stream(tensor, 1, 2, 0)
    else:
        group.recv_partial_on_calc_stream(tensor, 0, 2, 1)
        group.send_partial_on_calc_stream(tensor, 0, 2, 0)
    return tensor.numpy().tolist()


def _two_groups() -> list[float]:
    """The same two ranks talk in two groups, and read them in another order than they were sent."""
    rank, _ = _start()
    groups: list[Any] = [distributed.new_group([0, 1]) for _ in range(2)]
    tensors = [paddle.full([1], 1.0), paddle.full([1], 2.0)]
    if rank == 0:
        for tensor, group in zip(tensors, groups, strict=True):
            distributed.send(tensor, 1, group=group)
    else:
        for tensor, group in reversed([*zip(tensors, groups, strict=True)]):
            tensor.zero_()
            distributed.recv(tensor, 0, group=group)
    return [float(tensor.numpy()[0]) for tensor in tensors]


def _wrong_size() -> None:
    rank, _ = _start()
    if rank == 0:
        distributed.send(paddle.zeros([3]), 1)
    else:
        distributed.recv(paddle.zeros([4]), 0)


def _receive_from_the_dead() -> str:
    rank, _ = _start()
    tensor = paddle.zeros([1])
    if rank == 0:
        distributed.send(tensor, 1)
        distributed.recv(tensor, 1)  # so that the message above was read
        mailbox = next(thing for thing in gc.get_objects() if isinstance(thing, Mailbox))
        for peer in mailbox._peers.values():
            peer.close()
        return "closed"
    distributed.recv(tensor, 0)
    distributed.send(tensor, 0)
    with pytest.raises(ConnectionError, match="rank 0 closed its connection"):
        distributed.recv(tensor, 0)
    with pytest.raises(ConnectionError, match="rank 0 closed its connection"):
        distributed.recv(tensor, 0)
    return "noticed"


def _reductions() -> dict[str, list[Any]]:
    rank, ranks = _start()
    whole: Any = paddle.arange(6 * ranks, dtype="float32").reshape([2 * ranks, 3])
    share = paddle.zeros([2, 3])
    distributed.reduce_scatter(share, whole * (rank + 1))
    mine = paddle.full([2], float(rank))
    gathered = paddle.zeros([2 * ranks])
    stream.all_gather(gathered, mine, use_calc_stream=True)
    total, first, at_one = mine.clone(), mine.clone(), mine.clone()
    stream.all_reduce(total, use_calc_stream=True)
    stream.broadcast(first, 1, use_calc_stream=True)
    stream.reduce(at_one, 1, use_calc_stream=True)
    most = mine.clone()
    distributed.all_reduce(most, op=distributed.ReduceOp.MAX)
    results = {"share": share, "gathered": gathered, "total": total, "first": first, "most": most}
    if rank == 1:
        results["at_one"] = at_one
    return {name: tensor.numpy().tolist() for name, tensor in results.items()}


def _sum_of_tensor(name: Any) -> float:
    _start()
    tensor = paddle.full([3], 2).astype(name)
    distributed.all_reduce(tensor)
    return float(tensor.astype("float32").numpy()[2])


def _gathered_parts() -> list[float]:
    rank, ranks = _start()
    group: Any = distributed.get_group(0)
    tensor = paddle.zeros([2 * ranks])
    tensor[2 * rank : 2 * rank + 2] = float(rank + 1)
    output = paddle.zeros([2 * ranks])
    group.process_group.all_gather_partial_on_calc_stream(output, tensor, ranks, rank)
    return output.numpy().tolist()


def test_messages_pass_through_a_chain_of_more_than_two_ranks() -> None:
    assert run_ranks(4, _chain, 3) == [[10.0 * number + rank for number in range(3)] for rank in range(4)]


def test_a_ring_that_receives_before_it_sends_does_not_block() -> None:
    assert run_ranks(3, _ring) == [2.0, 0.0, 1.0]


def test_messages_have_every_dtype() -> None:
    for rank, received in enumerate(run_ranks(2, _dtypes)):
        assert received == [(f"paddle.{name}", float(1 - rank)) for name in DTYPES]


def test_messages_keep_their_order_whatever_is_waited_for_first() -> None:
    assert run_ranks(2, _late_waits) == [[0.0, 1.0, 2.0]] * 2


def test_parts_of_tensors_are_sent_and_received_in_place() -> None:
    expected = [[100.0, 101.0, 102.0, 103.0], [4.0, 5.0, 6.0, 7.0]]
    assert run_ranks(2, _parts) == [expected, expected]


def test_messages_of_different_groups_are_kept_apart() -> None:
    assert run_ranks(2, _two_groups) == [[1.0, 2.0]] * 2


def test_a_message_of_another_size_is_an_error() -> None:
    with pytest.raises(RankError, match="received 3 elements, expected 4"):
        run_ranks(2, _wrong_size)


def test_waiting_for_a_rank_that_has_gone_is_an_error() -> None:
    assert run_ranks(2, _receive_from_the_dead) == ["closed", "noticed"]


def test_collectives_that_gloo_lacks_give_sums_and_parts() -> None:
    results = run_ranks(3, _reductions)
    whole = np.arange(18.0).reshape(6, 3)
    for rank, result in enumerate(results):
        assert result["share"] == (whole[2 * rank : 2 * rank + 2] * 6).tolist()
        assert result["gathered"] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
        assert result["total"] == [3.0, 3.0]
        assert result["first"] == [1.0, 1.0]
        assert result["most"] == [2.0, 2.0]
    assert results[1]["at_one"] == [3.0, 3.0]


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float64", "int64"])
def test_sums_have_every_dtype_of_training(name: str) -> None:
    assert run_ranks(2, _sum_of_tensor, name) == [4.0, 4.0]


def test_parts_are_gathered_to_the_whole() -> None:
    assert run_ranks(2, _gathered_parts) == [[1.0, 1.0, 2.0, 2.0]] * 2
