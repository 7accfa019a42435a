"""GPTQ's integers are those of the published algorithm, and better than rounded ones."""

import numpy as np
import paddle
import pytest

from trainer.quantization.formats import WHOLE_ROW, Integers
from trainer.quantization.gptq import GptqResult, Hessian, SingularHessianError, gptq_quantize

INPUTS, OUTPUTS, TOKENS = 48, 20, 300


def inputs_of(tokens: int = TOKENS, inputs: int = INPUTS) -> np.ndarray:
    """Correlated inputs of very different sizes."""
    draws = np.random.default_rng(0)
    return (
        draws.normal(size=(tokens, inputs))
        @ draws.normal(size=(inputs, inputs))
        * draws.lognormal(size=inputs)
    )


def weight_of(inputs: int = INPUTS) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(OUTPUTS, inputs)).astype(np.float32)


def hessian_of(x: np.ndarray) -> np.ndarray:
    return 2.0 / len(x) * x.T @ x


def published(
    weight: np.ndarray, hessian: np.ndarray, bits: int, group: int, damping: float, block: int, order: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1 of arXiv 2210.17323 with the order of section 5, in NumPy: integers, dequantized weights.

    The reference code's details: a group's scale is taken from the weights as they are when it begins, also
    where it reaches beyond its block only once all earlier blocks are done; so group sizes here divide blocks
    or are whole rows.
    """
    w, h = weight.astype(np.float64).copy(), hessian.copy()
    outputs, inputs = w.shape
    highest = 2 ** (bits - 1) - 1
    permutation = np.argsort(-np.diag(h), kind="stable") if order else np.arange(inputs)
    w, h = w[:, permutation], h[permutation][:, permutation]
    h[np.arange(inputs), np.arange(inputs)] += damping * np.mean(np.diag(h))
    upper = np.linalg.cholesky(np.linalg.inv(h)).T
    integers, dequantized = np.zeros_like(w), np.zeros_like(w)
    scale = np.abs(w).max(axis=1).astype(np.float32).astype(np.float64) / highest
    for begin in range(0, inputs, block):
        end = min(begin + block, inputs)
        errors = np.zeros((outputs, end - begin))
        for j in range(begin, end):
            if group > 0 and j % group == 0:
                scale = np.abs(w[:, j : j + group]).max(axis=1) / highest
            integers[:, j] = np.clip(np.rint(w[:, j] / scale), -highest - 1, highest)
            dequantized[:, j] = integers[:, j] * scale
            errors[:, j - begin] = (w[:, j] - dequantized[:, j]) / upper[j, j]
            w[:, j + 1 : end] -= np.outer(errors[:, j - begin], upper[j, j + 1 : end])
        w[:, end:] -= errors @ upper[begin:end, end:]
    back = np.argsort(permutation)
    return integers[:, back], dequantized[:, back]


def output_error(x: np.ndarray, weight: np.ndarray, dequantized: np.ndarray) -> float:
    return float(np.sum((x @ (weight - dequantized).T) ** 2) / np.sum((x @ weight.T) ** 2))


def quantize(weight: np.ndarray, hessian: np.ndarray, **options: object) -> GptqResult:
    arguments = {"bits": 4, **options}
    return gptq_quantize(paddle.to_tensor(weight), paddle.to_tensor(hessian), **arguments)  # type: ignore[arg-type]


def dequantized(integers: Integers) -> np.ndarray:
    return integers.dequantize().numpy().astype(np.float64)


def test_the_hessian_is_twice_the_mean_of_outer_products_however_inputs_come() -> None:
    x = inputs_of().astype(np.float32)
    hessian = Hessian(INPUTS)
    for part in np.split(x, [10, 110]):
        hessian.add(paddle.to_tensor(part))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(hessian.matrix().numpy(), hessian_of(wide), rtol=1e-12, atol=1e-9)
    assert hessian.tokens == TOKENS


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [WHOLE_ROW, 8])
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("damping", [0.01, 0.1])
def test_integers_are_those_of_the_published_algorithm(
    bits: int, group: int, order: bool, damping: float
) -> None:
    x, weight = inputs_of(), weight_of()
    theirs, their_weights = published(weight, hessian_of(x), bits, group, damping, 16, order)
    found = quantize(
        weight, hessian_of(x), bits=bits, group_size=group, act_order=order, damping=damping, block_size=16
    )
    np.testing.assert_array_equal(found.integers.values.numpy(), theirs)
    np.testing.assert_allclose(dequantized(found.integers), their_weights, rtol=1e-6)
    assert found.error <= output_error(x, weight, their_weights) * (1 + 1e-5)
    assert found.damping == damping


@pytest.mark.parametrize("group", [WHOLE_ROW, 12])
@pytest.mark.parametrize("order", [False, True])
def test_the_block_size_changes_no_integer(group: int, order: bool) -> None:
    hessian, weight = hessian_of(inputs_of()), weight_of()
    results = [
        quantize(weight, hessian, group_size=group, act_order=order, block_size=block).integers.values.numpy()
        for block in (1, 7, 16, INPUTS, 128)
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [WHOLE_ROW, 16])
@pytest.mark.parametrize("order", [False, True])
def test_errors_are_measured_on_the_inputs_and_below_those_of_rounding(
    bits: int, group: int, order: bool
) -> None:
    x, weight = inputs_of(), weight_of()
    found = quantize(weight, hessian_of(x), bits=bits, group_size=group, act_order=order)
    groups = weight.reshape(OUTPUTS, -1, INPUTS if group == WHOLE_ROW else group)
    scales = np.abs(groups).max(axis=2, keepdims=True) / (2 ** (bits - 1) - 1)
    nearest = (np.rint(groups / scales) * scales).reshape(weight.shape)
    assert found.error == pytest.approx(output_error(x, weight, dequantized(found.integers)), rel=1e-3)
    assert found.rtn_error == pytest.approx(output_error(x, weight, nearest), rel=1e-3)
    assert found.error < found.rtn_error


def test_groups_follow_the_order_in_which_inputs_are_treated() -> None:
    hessian = hessian_of(inputs_of())
    found = quantize(weight_of(), hessian, group_size=8, act_order=True).integers
    assert found.g_idx is not None
    order = np.argsort(-np.diag(hessian), kind="stable")
    np.testing.assert_array_equal(found.g_idx.numpy()[order], np.arange(INPUTS) // 8)


def test_scales_can_be_those_that_float16_holds() -> None:
    found = quantize(weight_of(), hessian_of(inputs_of()), group_size=8, half=True).integers
    scales = found.scales.numpy()
    np.testing.assert_array_equal(scales, scales.astype(np.float16).astype(np.float32))


def test_a_row_repeated_is_worked_with_by_raising_the_damping_which_is_told() -> None:
    x = np.repeat(inputs_of(tokens=1), TOKENS, axis=0)
    found = quantize(weight_of(), hessian_of(x), damping=0.0)
    assert found.damping == 0.01
    assert found.error < found.rtn_error


def test_damping_grows_tenfold() -> None:
    x = np.repeat(inputs_of(tokens=1), TOKENS, axis=0)
    assert quantize(weight_of(), hessian_of(x), damping=1e-17).damping == 0.01
    assert quantize(weight_of(), hessian_of(x), damping=0.03).damping == 0.03


def test_weights_of_dead_inputs_become_zero_and_count_in_no_scale() -> None:
    x, weight = inputs_of(), weight_of()
    x[:, [3, 17]] = 0.0
    weight[:, 3] = 100.0
    found = quantize(weight, hessian_of(x), group_size=16)
    assert found.dead_inputs == 2
    assert not found.integers.values.numpy()[:, [3, 17]].any()
    assert found.integers.scales.numpy().max() < 2.0
    assert found.error < found.rtn_error


def test_inputs_that_are_all_zero_give_zeros() -> None:
    found = quantize(weight_of(), np.zeros((INPUTS, INPUTS)))
    assert found.dead_inputs == INPUTS
    assert not found.integers.values.numpy().any()
    assert found.error == found.rtn_error == 0.0


def test_a_hessian_that_is_not_finite_is_refused() -> None:
    hessian = hessian_of(inputs_of())
    hessian[0, 0] = np.nan
    with pytest.raises(SingularHessianError, match="damping of 1"):
        quantize(weight_of(), hessian)
