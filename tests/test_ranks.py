"""Functions in several processes: results, failures, and nothing left behind."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.ranks import RankError, run_ranks


def _place(offset: int) -> tuple[int, int, int]:
    return int(os.environ["PADDLE_TRAINER_ID"]) + offset, int(os.environ["PADDLE_TRAINERS_NUM"]), os.getpid()


def _fail_in_rank_one(folder: Path) -> None:
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    (folder / str(rank)).write_text(str(os.getpid()))
    print(f"I am rank {rank}")
    if rank == 1:
        while len(list(folder.iterdir())) < 3:
            time.sleep(0.01)
        raise ValueError("no luck today")
    time.sleep(60)


def _die() -> None:
    os._exit(7)


def _sleep() -> None:
    time.sleep(60)


def _sum_over_ranks() -> float:
    import paddle
    import paddle.distributed as distributed

    distributed.init_parallel_env()
    total = paddle.to_tensor([float(distributed.get_rank() + 1)])
    distributed.all_reduce(total)
    return float(total.numpy()[0])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_results_come_in_the_order_of_ranks_from_processes_of_their_own() -> None:
    results = run_ranks(3, _place, 10)
    assert [result[:2] for result in results] == [(10, 3), (11, 3), (12, 3)]
    assert len({os.getpid()} | {result[2] for result in results}) == 4


def test_ranks_compute_and_communicate_although_the_test_has_computed() -> None:
    import paddle

    assert float(paddle.ones([64, 64]).matmul(paddle.ones([64, 64])).sum()) == 64.0**3
    assert run_ranks(2, _sum_over_ranks) == [3.0, 3.0]


def test_an_exception_is_raised_with_rank_traceback_and_logs_and_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(RankError, match=r"(?s)rank 1 of 3 raised.*no luck today.*I am rank 2"):
        run_ranks(3, _fail_in_rank_one, tmp_path)
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(pids) == 3
    assert not any(_alive(pid) for pid in pids)


def test_a_death_is_told_with_its_exit_code() -> None:
    with pytest.raises(RankError, match="died with exit code 7"):
        run_ranks(2, _die)


def test_ranks_that_take_too_long_are_ended() -> None:
    with pytest.raises(RankError, match=r"ranks \[0, 1\] of 2 were not done after 0.5 s"):
        run_ranks(2, _sleep, timeout_s=0.5)


def test_an_interrupted_call_does_not_disturb_the_next_one() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_ranks(2, _sleep)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [result[0] for result in run_ranks(2, _place, 0)] == [0, 1]


def test_a_function_inside_a_function_is_refused() -> None:
    with pytest.raises(TypeError, match="not at the top level"):
        run_ranks(1, lambda: None)
