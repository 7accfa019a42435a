from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from trainer import load_model
from trainer.checkpoint.optimizer_state import has_optimizer, load_optimizer, optimizer_files
from trainer.checkpoint.pieces import Contents
from trainer.checkpoint.saver import Saver
from trainer.checkpoint.target import files_target
from trainer.config import DataError, FinetuneConfig
from trainer.loop.precision import FullPrecision
from trainer.models.base import CausalLM
from trainer.models.weights import Weight
from trainer.parallel.update import Updater
from trainer.parallel.update_choice import make_updater

MakeConfig = Callable[..., FinetuneConfig]

OPTIMIZER_FILE = "optimizer.safetensors"


def take_steps(updater: Updater, count: int) -> None:
    ids = paddle.to_tensor(np.arange(10, 18).reshape(1, 8))
    for _ in range(count):
        (updater.model.loss(ids, ids + 1).sum / 8).backward()
        updater.step(1e-2)


def save_optimizer(updater: Updater, directory: Path) -> None:
    Saver(directory).save(files_target(directory), Contents([optimizer_files(updater)]))


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
    updater = make_updater(model, make_config())
    take_steps(updater, 2)
    save_optimizer(updater, tmp_path)
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
    updater = make_updater(model, make_config())
    take_steps(updater, 3)
    save_optimizer(updater, tmp_path)
    copied = copy_of(model, tiny_gemma)
    read = make_updater(copied, make_config())
    load_optimizer(read, tmp_path)
    take_steps(updater, 3)
    take_steps(read, 3)
    for name, weight in weights(model).items():
        np.testing.assert_array_equal(weights(copied)[name], weight)


def test_what_was_read_can_be_saved_again_before_any_step(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    model = load_model(tiny_gemma)
    updater = make_updater(model, make_config())
    take_steps(updater, 1)
    save_optimizer(updater, tmp_path)
    (tmp_path / "again").mkdir()
    copied = copy_of(model, tiny_gemma)
    read = make_updater(copied, make_config())
    load_optimizer(read, tmp_path)
    save_optimizer(read, tmp_path / "again")
    assert (tmp_path / "again" / OPTIMIZER_FILE).read_bytes() == (tmp_path / OPTIMIZER_FILE).read_bytes()


def test_before_the_first_step_there_is_no_state(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    model = load_model(tiny_gemma)
    save_optimizer(make_updater(model, make_config()), tmp_path)
    assert load_file(tmp_path / OPTIMIZER_FILE) == {}
    load_optimizer(make_updater(model, make_config()), tmp_path)


@pytest.mark.parametrize("change", ["missing", "shape"])
def test_state_of_another_model_is_refused(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path, change: str
) -> None:
    model = load_model(tiny_gemma)
    updater = make_updater(model, make_config())
    take_steps(updater, 1)
    save_optimizer(updater, tmp_path)
    state = load_file(tmp_path / OPTIMIZER_FILE)
    if change == "missing":
        del state["model.norm.weight/moment2"]
    else:
        state["model.norm.weight/moment2"] = np.zeros(3, dtype=np.float32)
    save_file(state, tmp_path / OPTIMIZER_FILE)
    with pytest.raises(DataError, match=r"model\.norm\.weight/moment2"):
        load_optimizer(make_updater(model, make_config()), tmp_path)


class MasterWeights(FullPrecision):
    """The weights are bfloat16, and the optimizer has fp32 copies of them."""

    @property
    def master_weights(self) -> bool:
        return True


def test_master_weights_of_low_precision_training_are_kept_in_float32(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    updater = make_updater(load_model(tiny_gemma, "bfloat16"), make_config(), MasterWeights())
    finer = 1 + 2**-12
    updater.load_state(lambda weight, kind, span: np.full(state_shape(weight, kind), finer, np.float32))
    save_optimizer(updater, tmp_path)
    state, on_disk = load_file(tmp_path / OPTIMIZER_FILE), load_file(tiny_gemma / "model.safetensors")
    for name, weight in on_disk.items():
        np.testing.assert_array_equal(state[f"{name}/master"], np.full(weight.shape, finer, np.float32))
    read = make_updater(load_model(tiny_gemma, "bfloat16"), make_config(), MasterWeights())
    load_optimizer(read, tmp_path)
    masters = [held for held in read.state() if held.kind == "master"]
    assert len(masters) == len(on_disk)
    assert all((held.tensor.numpy() == np.float32(finer)).all() for held in masters)


def state_shape(weight: Weight, kind: str) -> list[int]:
    return [1] if kind.startswith("beta") else weight.parameter.shape


def test_a_checkpoint_without_master_weights_leaves_those_made_of_the_weights(
    tiny_gemma: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    updater = make_updater(load_model(tiny_gemma), make_config())
    take_steps(updater, 1)
    save_optimizer(updater, tmp_path)
    read = make_updater(load_model(tiny_gemma, "bfloat16"), make_config(), MasterWeights())
    load_optimizer(read, tmp_path)
    for held in read.state():
        if held.kind == "master":
            expected = held.weight.parameter.astype("float32").numpy()
            np.testing.assert_array_equal(held.tensor.numpy(), expected)


def test_it_is_told_whether_a_checkpoint_has_the_state(tmp_path: Path) -> None:
    assert not has_optimizer(tmp_path)
    (tmp_path / "optimizer.safetensors.index.json").write_text("{}")
    assert has_optimizer(tmp_path)
