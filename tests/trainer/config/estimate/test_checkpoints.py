"""How many checkpoints a run writes, and how many bytes of them lie there at once."""

from typing import Any

from trainer.config import read_config
from trainer.config.estimate.architecture import Architecture
from trainer.config.estimate.checkpoints import Checkpoints, checkpoints
from trainer.config.schema import FinetuneConfig

STEPS = 10


def found(**arguments: Any) -> Checkpoints:
    common = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o", "do_train": True}
    config = read_config("finetune", common | {"save_strategy": "steps", "save_steps": 4} | arguments).config
    assert isinstance(config, FinetuneConfig)
    sizes = {"vocab_size": 97, "hidden_size": 32, "n_layer": 5, "n_head": 4}
    model = Architecture.of({"model_type": "bloom", **sizes})
    assert model is not None
    return checkpoints(model, config, "cpu", STEPS, 1)


def test_the_last_step_is_saved_as_well() -> None:
    assert found().saves == 3


def test_the_optimizer_has_two_numbers_for_each_of_the_model() -> None:
    assert found().optimizer_bytes == 2 * found().weights_bytes


def test_an_old_checkpoint_goes_only_when_the_new_one_is_complete() -> None:
    limited = found(save_total_limit=1)
    assert (limited.kept, limited.total_bytes) == (1, 2 * limited.bytes)


def test_nothing_is_saved_where_the_strategy_is_no() -> None:
    assert found(save_strategy="no").saves == 0
