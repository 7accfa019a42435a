import pytest

from trainer.failures import LOST_PEER
from trainer.launcher.records import End
from trainer.launcher.verdict import LAUNCHER_GRACE_S, Death, Verdict, judge


def ended(rank: int, t: float, msg: str = "", kind: str = "internal", code: int = 1) -> End:
    return End(rank, t, code, kind if code else "", msg)


def lost(rank: int, t: float) -> End:
    return ended(rank, t, "The connection was reset.", LOST_PEER)


def outcome(*ends: End, status: int | None = 1, **deaths: Death) -> Verdict:
    """The verdict on three ranks, whose deaths are named r0, r1 and r2. The launcher ends at 10."""
    died = {int(name[1:]): death for name, death in deaths.items()}
    return judge(range(3), ends, died, Death(10.0, status), "its last words")


def test_all_ranks_that_say_so_have_succeeded_whatever_the_launcher_makes_of_it():
    ends = [ended(rank, 1.0, code=0) for rank in range(3)]
    assert outcome(*ends, status=15) == Verdict(0)
    assert outcome(*ends, r0=Death(2.0, -6), status=250) == Verdict(0)


def test_the_first_failure_is_the_cause():
    verdict = outcome(ended(0, 1.3, "bad", "data", 3), ended(2, 1.2, "worse", "data", 3))
    assert (verdict.exit_code, verdict.kind, verdict.msg, verdict.rank) == (3, "data", "worse", 2)


def test_of_ranks_that_failed_alike_the_lowest_is_named():
    verdict = outcome(ended(2, 1.1, "bad", "data", 3), ended(1, 1.2, "bad", "data", 3))
    assert (verdict.msg, verdict.rank) == ("bad", 1)


def test_a_lost_connection_is_not_the_cause_even_when_it_was_noticed_first():
    verdict = outcome(lost(0, 1.0), ended(1, 1.1, "The disk is full.", "disk"), lost(2, 1.0))
    assert (verdict.rank, verdict.msg) == (1, "Rank 1: The disk is full.")


def test_a_rank_that_was_killed_is_the_cause_though_it_says_nothing():
    verdict = outcome(lost(0, 1.0), lost(2, 1.0), r0=Death(1.1, 1), r1=Death(1.2, -9))
    assert (verdict.exit_code, verdict.kind, verdict.rank) == (137, "rank_killed", 1)
    assert "Rank 1 was killed by signal 9 (SIGKILL). Perhaps the host had no memory left." in verdict.msg


def test_a_crash_names_its_signal():
    verdict = outcome(r2=Death(1.0, -11))
    assert verdict.exit_code == 139
    assert "Rank 2 was killed by signal 11 (SIGSEGV). All other" in verdict.msg


def test_what_the_launcher_kills_later_is_no_cause():
    late = Death(1.0 + LAUNCHER_GRACE_S + 1, -9)
    verdict = outcome(lost(0, 1.0), r1=late, r2=late)
    assert (verdict.exit_code, verdict.rank) == (1, 0)
    assert verdict.msg == "Rank 0: The connection was reset."


def test_ranks_that_die_with_the_launcher_are_not_blamed():
    death = Death(9.9, -9)
    verdict = outcome(status=-9, r0=death, r1=death, r2=death)
    assert (verdict.exit_code, verdict.rank) == (137, None)
    assert "launcher of the ranks was killed by signal 9 (SIGKILL)" in verdict.msg
    assert outcome(ended(1, 5.0, "bad", "data", 3), status=-9, r0=death, r2=death).exit_code == 3


def test_a_deadline_that_has_passed_in_a_rank_is_the_exit_code():
    assert outcome(r0=Death(1.0, 75), r1=Death(1.1, 75)).exit_code == 75


def test_a_rank_that_leaves_without_a_word_is_a_failure():
    verdict = outcome(lost(0, 1.4), lost(2, 1.4), r1=Death(1.0, 0))
    assert (verdict.exit_code, verdict.rank) == (1, 1)


@pytest.mark.parametrize("ends", [(), (ended(0, 1.0, code=0),)])
def test_a_launcher_that_fails_alone_is_quoted(ends: tuple[End, ...]):
    verdict = outcome(*ends)
    assert verdict.exit_code == 1
    assert verdict.msg.endswith("the launcher exited with status 1: its last words")
