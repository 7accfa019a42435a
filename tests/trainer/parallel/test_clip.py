import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.distributed as distributed
import pytest

from tests.ranks import run_ranks
from trainer.parallel.clip import GlobalNormClip, GradientsNotFinite
from trainer.parallel.layout import start
from trainer.parallel.topology import Topology

Pairs = list[tuple[paddle.Tensor, paddle.Tensor]]


def gradients(*values: list[float]) -> Pairs:
    """Parameters with these gradients."""
    return [(paddle.create_parameter([len(value)], "float32"), paddle.to_tensor(value)) for value in values]


def lists(pairs: Pairs) -> list[Any]:
    return [gradient.tolist() for _, gradient in pairs]


def test_gradients_above_the_limit_are_scaled_to_it_together() -> None:
    clip = GlobalNormClip(1.0)
    clipped = clip(gradients([3.0, 0.0], [0.0, 4.0]))
    assert clip.norm == pytest.approx(5.0)
    np.testing.assert_allclose(lists(clipped), [[0.6, 0], [0, 0.8]], rtol=1e-6)


@pytest.mark.parametrize("limit", [10.0, 0.0, -1.0])
def test_gradients_below_the_limit_or_without_one_are_left_as_they_are(limit: float) -> None:
    clip = GlobalNormClip(limit)
    assert lists(clip(gradients([3.0, 0.0], [0.0, 4.0]))) == [[3, 0], [0, 4]]
    assert clip.norm == pytest.approx(5.0)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_gradients_that_are_not_finite_are_refused_and_left_as_they_are(broken: float) -> None:
    pairs = gradients([broken, 1.0], [2.0])
    with pytest.raises(GradientsNotFinite) as error:
        GlobalNormClip(1.0)(pairs)
    assert not math.isfinite(error.value.norm)
    assert pairs[1][1].tolist() == [2.0]


@pytest.mark.parametrize("limit", [0.0, 1.0, 10.0])
def test_a_loss_scale_is_taken_out_before_the_norm_and_the_limit(limit: float) -> None:
    clip = GlobalNormClip(limit)
    clip.loss_scale = 4096.0
    clipped = clip(gradients([3.0 * 4096, 0.0], [0.0, 4.0 * 4096]))
    expected = GlobalNormClip(limit)(gradients([3.0, 0.0], [0.0, 4.0]))
    assert clip.norm == pytest.approx(5.0)
    np.testing.assert_allclose(lists(clipped), lists(expected), rtol=1e-6)


def test_float16_gradients_become_float32_where_they_are_scaled_so_that_they_do_not_vanish() -> None:
    clip = GlobalNormClip(0.0)
    clip.loss_scale = 2.0**15
    parameter = paddle.create_parameter([2], "float32")
    ((_, gradient),) = clip([(parameter, paddle.to_tensor([2.0**-14, 0.0], dtype="float16"))])
    assert gradient.dtype == paddle.float32
    assert gradient.tolist() == [2.0**-29, 0.0]


def test_gradients_that_several_processes_have_count_once() -> None:
    clip = GlobalNormClip(0.0, copies=lambda parameter: 2 if parameter.shape == [1] else 1)
    clip(gradients([6.0], [3.0, 4.0]))
    assert clip.norm == pytest.approx(math.sqrt(36 / 2 + 25))


def test_parameters_without_gradient_and_no_gradients_at_all_are_fine() -> None:
    clip = GlobalNormClip(1.0)
    parameter = paddle.create_parameter([1], "float32")
    assert clip([(parameter, None)]) == []
    assert clip([]) == []
    assert clip.norm == 0.0


def test_the_sum_over_many_tensors_is_exact_to_float32() -> None:
    random = np.random.default_rng(0)
    values = [random.normal(size=size).astype(np.float32) for size in (1, 1000, 37, 100_000)]
    clip = GlobalNormClip(0.0)
    clip([(paddle.create_parameter([1], "float32"), paddle.to_tensor(value)) for value in values])
    exact = math.sqrt(sum(float((value.astype(np.float64) ** 2).sum()) for value in values))
    assert clip.norm == pytest.approx(exact, rel=1e-6)


def clip_in_rank(limit: float, broken_rank: int | None) -> tuple[float, list[Any]] | str:
    """Each rank has a gradient of its own and one that all have; returns the norm and what came out."""
    layout = start(Topology(data=2), seed=0)
    own, common = gradients([3.0 if layout.rank == 0 else 4.0], [12.0])
    if broken_rank == layout.rank:
        own[1].fill_(math.inf)
    add_up: Callable[[paddle.Tensor], None] = lambda total: distributed.all_reduce(total)  # type: ignore[assignment] # noqa: E731
    clip = GlobalNormClip(limit, copies=lambda p: 2 if p is common[0] else 1, add_up=add_up)
    try:
        clipped = clip([own, common])
    except GradientsNotFinite as error:
        return str(error)
    return clip.norm, [gradient.item() for _, gradient in clipped]


def test_over_processes_the_norm_is_that_of_all_gradients_and_each_scales_its_own() -> None:
    first, second = run_ranks(2, clip_in_rank, 6.5, None)
    assert first == (pytest.approx(13.0), pytest.approx([1.5, 6.0]))
    assert second == (pytest.approx(13.0), pytest.approx([2.0, 6.0]))


def test_an_overflow_in_one_process_is_refused_in_all() -> None:
    assert run_ranks(2, clip_in_rank, 1.0, 1) == ["the gradient norm is inf"] * 2
