import math

import pytest

from trainer.loop.schedule import Schedule, warmup_steps

LR = 2e-3


def rates(kind: str, warmup: int, total: int, upto: int, **more: float) -> list[float]:
    schedule = Schedule(kind, LR, warmup, total, **more)
    return [schedule.rate(step) for step in range(upto)]


def test_linear_rises_from_zero_and_falls_to_zero_at_the_total() -> None:
    expected = [0, LR / 2, LR, LR * 3 / 4, LR / 2, LR / 4, 0, 0]
    assert rates("linear", 2, 6, 8) == pytest.approx(expected)


def test_linear_without_warmup_begins_at_the_peak() -> None:
    assert rates("linear", 0, 4, 5) == pytest.approx([LR, LR * 3 / 4, LR / 2, LR / 4, 0])


def test_cosine_follows_its_closed_form() -> None:
    expected = [LR * 0.5 * (1 + math.cos(math.pi * (step - 3) / 7)) for step in range(3, 11)]
    assert rates("cosine", 3, 10, 11)[3:] == pytest.approx(expected)
    assert rates("cosine", 3, 10, 3) == pytest.approx([0, LR / 3, LR * 2 / 3])


def test_more_cosine_cycles_come_back_up() -> None:
    assert rates("cosine", 0, 8, 9, num_cycles=1.0)[8] == pytest.approx(LR)


def test_constant_has_no_warmup_and_constant_with_warmup_has() -> None:
    assert rates("constant", 3, 5, 5) == [LR] * 5
    assert rates("constant_with_warmup", 2, 5, 5) == pytest.approx([0, LR / 2, LR, LR, LR])


def test_polynomial_ends_at_lr_end_and_stays_there() -> None:
    found = rates("polynomial", 1, 5, 8, lr_end=1e-4, power=2.0)
    expected = [(LR - 1e-4) * (1 - (step - 1) / 4) ** 2 + 1e-4 for step in range(1, 5)]
    assert found[0] == 0
    assert found[1:5] == pytest.approx(expected)
    assert found[5:] == pytest.approx([1e-4] * 3)


def test_a_learning_rate_of_zero_stays_zero() -> None:
    assert Schedule("polynomial", 0.0, 0, 5).rate(3) == 0


def test_warmup_steps_win_over_the_ratio() -> None:
    assert warmup_steps(5, 0.5, 100) == 5
    assert warmup_steps(0, 0.03, 99) == 2
