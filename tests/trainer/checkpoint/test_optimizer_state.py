from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from trainer import load_model
from trainer.checkpoint.optimizer_state import OPTIMIZER_FILE, load_optimizer, save_optimizer
from trainer.config import DataError, FinetuneConfig
from trainer.loop.optimizer import build_optimizer
from trainer.models.base import CausalLM

MakeConfig = Callable[..., FinetuneConfig]


def take_steps(model: CausalLM, optimizer: paddle.optimizer.AdamW, count: int) -> None:
    ids = paddle.to_tensor(np.arange(10, 18).reshape(1, 8))
    optimizer.set_lr(1e-2)
    for _ in range(count):
        (model.loss(ids, ids + 1).sum / 8).backward()
        optimizer.step()
        optimizer.clear_grad()


def weights(model: CausalLM) -> dict[str, np.ndarray]:
    return {name: weight.parameter.numpy() for name, weight in model.parameter_names().items()}


def copy_of(model: CausalLM, directory: Path) -> CausalLM:
    copied = load_model(directory)
    for name, weight in copied.parameter_names().items():
        with paddle.no_grad():
            weight.parameter.set_value(model.parameter_names()[name].parameter)
    return copied


def test_state_is_named_and_turned_like_the_weights_on_disk(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    model = load_model(tiny_gemma)
    optimizer = build_optimizer(model.parameters(), make_config())
    take_steps(model, optimizer, 2)
    save_optimizer(model, optimizer, tmp_path)
    on_disk = load_file(tiny_gemma / "model.safetensors")
    state = load_file(tmp_path / OPTIMIZER_FILE)
    kinds = ("moment1", "moment2", "beta1_power", "beta2_power")
    assert state.keys() == {f"{name}/{kind}" for name in on_disk for kind in kinds}
    for name, weight in on_disk.items():
        assert state[f"{name}/moment1"].shape == state[f"{name}/moment2"].shape == weight.shape
        assert state[f"{name}/moment1"].dtype == np.float32
        assert state[f"{name}/beta1_power"] == pytest.approx([0.9**3])
        assert state[f"{name}/beta2_power"] == pytest.approx([0.999**3])


def test_an_optimizer_that_was_read_goes_on_bit_for_bit(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    model = load_model(tiny_gemma)
    optimizer = build_optimizer(model.parameters(), make_config())
    take_steps(model, optimizer, 3)
    save_optimizer(model, optimizer, tmp_path)
    copied = copy_of(model, tiny_gemma)
    read = build_optimizer(copied.parameters(), make_config())
    load_optimizer(copied, read, tmp_path)
    take_steps(model, optimizer, 3)
    take_steps(copied, read, 3)
    for name, weight in weights(model).items():
        np.testing.assert_array_equal(weights(copied)[name], weight)


def test_what_was_read_can_be_saved_again_before_any_step(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    model = load_model(tiny_gemma)
    optimizer = build_optimizer(model.parameters(), make_config())
    take_steps(model, optimizer, 1)
    save_optimizer(model, optimizer, tmp_path)
    (tmp_path / "again").mkdir()
    copied = copy_of(model, tiny_gemma)
    read = build_optimizer(copied.parameters(), make_config())
    load_optimizer(copied, read, tmp_path)
    save_optimizer(copied, read, tmp_path / "again")
    assert (tmp_path / "again" / OPTIMIZER_FILE).read_bytes() == (tmp_path / OPTIMIZER_FILE).read_bytes()


def test_before_the_first_step_there_is_no_state(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    model = load_model(tiny_gemma)
    save_optimizer(model, build_optimizer(model.parameters(), make_config()), tmp_path)
    assert load_file(tmp_path / OPTIMIZER_FILE) == {}
    load_optimizer(model, build_optimizer(model.parameters(), make_config()), tmp_path)


@pytest.mark.parametrize("change", ["missing", "shape"])
def test_state_of_another_model_is_refused(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path, change: str
) -> None:
    model = load_model(tiny_gemma)
    optimizer = build_optimizer(model.parameters(), make_config())
    take_steps(model, optimizer, 1)
    save_optimizer(model, optimizer, tmp_path)
    state = load_file(tmp_path / OPTIMIZER_FILE)
    if change == "missing":
        del state["model.norm.weight/moment2"]
    else:
        state["model.norm.weight/moment2"] = np.zeros(3, dtype=np.float32)
    save_file(state, tmp_path / OPTIMIZER_FILE)
    with pytest.raises(DataError, match=r"model\.norm\.weight/moment2"):
        load_optimizer(model, build_optimizer(model.parameters(), make_config()), tmp_path)


def test_master_weights_of_low_precision_training_are_kept(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    model = load_model(tiny_gemma)
    optimizer = build_optimizer(model.parameters(), make_config(), master_weights=True)
    masters: Any = {
        weight.parameter.name: weight.parameter.detach().clone()
        for weight in model.parameter_names().values()
    }
    optimizer.set_state_dict({"master_weights": masters})
    save_optimizer(model, optimizer, tmp_path)
    state, on_disk = load_file(tmp_path / OPTIMIZER_FILE), load_file(tiny_gemma / "model.safetensors")
    for name, weight in on_disk.items():
        np.testing.assert_array_equal(state[f"{name}/master"], weight)
