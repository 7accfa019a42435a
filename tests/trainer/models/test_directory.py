import json
from pathlib import Path

import numpy as np
import pytest

import trainer
from trainer.config.problems import DataError
from trainer.models import CausalLM, family, load_model, new_model, save_model
from trainer.models.gemma.configuration import GemmaConfig

CONFIG = GemmaConfig(
    vocab_size=50,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=6,
)


def weights(model: CausalLM) -> dict[str, np.ndarray]:
    return {name: parameter.numpy() for name, parameter in model.named_parameters()}


def test_the_same_seed_gives_the_same_weights():
    one, two = weights(new_model(CONFIG, seed=3)), weights(new_model(CONFIG, seed=3))
    assert all((one[name] == two[name]).all() for name in one)


def test_another_seed_gives_other_weights():
    one, two = weights(new_model(CONFIG, seed=3)), weights(new_model(CONFIG, seed=4))
    assert (one["model.embed_tokens.weight"] != two["model.embed_tokens.weight"]).all()


def test_a_tensor_depends_on_the_seed_and_its_name_alone():
    deeper = GemmaConfig(**{**CONFIG.__dict__, "num_hidden_layers": 3})
    one, two = weights(new_model(CONFIG, seed=3)), weights(new_model(deeper, seed=3))
    assert all((one[name] == two[name]).all() for name in one)


def test_matrices_are_drawn_with_the_range_of_the_config_and_norms_are_zero():
    wide = GemmaConfig(**{**CONFIG.__dict__, "vocab_size": 2000, "initializer_range": 0.05})
    drawn = weights(new_model(wide))
    assert drawn["model.embed_tokens.weight"].std() == pytest.approx(0.05, rel=0.03)
    assert abs(drawn["model.embed_tokens.weight"].mean()) < 0.002
    assert not drawn["model.norm.weight"].any()


def test_a_saved_model_loads_with_all_it_came_with(tmp_path: Path):
    model = new_model(GemmaConfig.from_dict({**CONFIG.to_dict(), "my_note": "kept"}))
    model.generation_config = {"eos_token_id": [1, 2]}
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.generation_config == {"eos_token_id": [1, 2]}
    assert loaded.config.to_dict()["my_note"] == "kept"
    assert all((weights(loaded)[name] == value).all() for name, value in weights(model).items())


def test_a_loaded_model_is_ready_for_evaluation_and_can_be_trained(tmp_path: Path):
    save_model(new_model(CONFIG), tmp_path)
    model = load_model(tmp_path)
    assert not model.training
    assert not any(parameter.stop_gradient for parameter in model.parameters())


def test_an_unknown_dtype_is_refused(tmp_path: Path):
    save_model(new_model(CONFIG), tmp_path)
    with pytest.raises(ValueError, match="got 'int8', expected one of: float32, bfloat16, float16"):
        load_model(tmp_path, dtype="int8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not there"),
        ("{", "cannot be read"),
        ("[]", "not a JSON object"),
        ('{"model_type": "bert"}', "bert"),
    ],
)
def test_a_directory_without_a_usable_config_is_refused(tmp_path: Path, content: str | None, message: str):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(DataError, match=message):
        load_model(tmp_path)


def test_an_unknown_family_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match="expected one of: gemma"):
        family("bert")


def test_the_surface_of_the_package_does_the_same(tmp_path: Path):
    trainer.save_model(new_model(CONFIG, seed=1), tmp_path)
    loaded = trainer.load_model(tmp_path)
    assert (
        weights(loaded)["model.embed_tokens.weight"]
        == weights(new_model(CONFIG, seed=1))["model.embed_tokens.weight"]
    ).all()
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == "float32"
