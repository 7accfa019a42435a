"""The numbers of parameters are exactly those of the model that the trainer makes."""

import json
import subprocess
import sys
from typing import Any

import pytest

from trainer.config import read_config
from trainer.config.adapters import LoraSettings
from trainer.config.estimate.architecture import Architecture
from trainer.config.estimate.memory import stages_of
from trainer.config.estimate.parameters import adapter_parameters, held
from trainer.config.known_models import KNOWN_MODELS
from trainer.config.schema import FinetuneConfig
from trainer.config.topology import Topology
from trainer.models import new_model
from trainer.models.placement import Placement
from trainer.models.registry import family
from trainer.parallel.pipeline_stages import stages_of as stages_in_trainer
from trainer.peft.lora.adapter import add_lora
from trainer.peft.prefix.adapter import add_prefix

GEMMA: dict[str, Any] = {
    "model_type": "gemma",
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
BLOOM: dict[str, Any] = {
    "model_type": "bloom",
    "vocab_size": 97,
    "hidden_size": 32,
    "n_layer": 5,
    "n_head": 4,
}
CONTENTS = {
    "gemma": GEMMA,
    "gemma with one key head": GEMMA | {"num_key_value_heads": 1},
    "gemma with biases": GEMMA | {"attention_bias": True},
    "gemma with a head of its own": GEMMA | {"tie_word_embeddings": False},
    "gemma with fused projections": GEMMA | {"fuse_attention_qkv": True, "fuse_attention_ffn": True},
    "bloom": BLOOM,
    "bloom with a head of its own": BLOOM | {"tie_word_embeddings": False},
}


def architecture(content: dict[str, Any]) -> Architecture:
    found = Architecture.of(content)
    assert found is not None
    return found


def made(content: dict[str, Any]) -> Any:
    return new_model(family(content["model_type"]).config_class.from_dict(content))


def numbers(model: Any) -> int:
    return sum(parameter.size for parameter in model.parameters())


def config_with(**arguments: Any) -> FinetuneConfig:
    common = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o", "do_train": True}
    reading = read_config("finetune", common | arguments)
    assert isinstance(reading.config, FinetuneConfig), reading.problems
    return reading.config


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_model_has_the_numbers_of_its_modules(content: dict[str, Any]) -> None:
    assert architecture(content).parameters == numbers(made(content))


@pytest.mark.parametrize("name", KNOWN_MODELS)
def test_a_published_model_has_its_published_number(name: str) -> None:
    known = KNOWN_MODELS[name]
    found = architecture({"model_type": known.model_type, **known.sizes})
    assert found.parameters == known.parameters


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("targets", [None, ["q_proj", "down_proj"], ["model.layers.3.mlp.up_proj"]])
def test_lora_has_the_numbers_of_its_matrices(content: dict[str, Any], targets: list[str] | None) -> None:
    if targets and content["model_type"] == "bloom":
        targets = ["dense", "transformer.h.2.mlp.dense_h_to_4h"]
    model = made(content)
    add_lora(model, LoraSettings(rank=3, alpha=6, targets=tuple(targets or ())))
    config = config_with(lora=True, lora_rank=3, target_modules=targets)
    assert adapter_parameters(architecture(content), config) == numbers(model) - numbers(made(content))


@pytest.mark.parametrize("content", [GEMMA, BLOOM], ids=["gemma", "bloom"])
@pytest.mark.parametrize(
    ("arguments", "projection"),
    [({}, None), ({"prefix_projection": True}, "width"), ({"prefix_projection_hidden_size": 7}, 7)],
)
def test_a_prefix_has_the_numbers_of_its_encoder(
    content: dict[str, Any], arguments: dict[str, Any], projection: int | str | None
) -> None:
    found = architecture(content)
    width = found.key_width if projection == "width" else projection
    model = made(content)
    adapter = add_prefix(model, 6, width)  # type: ignore[arg-type]
    if projection:
        arguments = arguments | {"prefix_projection": True}
    config = config_with(prefix_tuning=True, num_prefix_tokens=6, **arguments)
    trained = sum(weight.parameter.size for weight in adapter.weights().values())
    assert adapter_parameters(found, config) == trained


@pytest.mark.parametrize("pipeline", [2, 4])
@pytest.mark.parametrize("virtual", [1, 2])
@pytest.mark.parametrize("layers", [8, 9, 11])
def test_a_pipeline_is_cut_as_the_trainer_cuts_it(pipeline: int, virtual: int, layers: int) -> None:
    topology = Topology(pipeline=pipeline, virtual=virtual)
    for rank, (here, ends) in enumerate(stages_of(layers, topology)):
        stages = stages_in_trainer(topology, rank, layers)
        assert len(here) == len(stages - {0, layers + 1})
        assert {"first": (True, False), "last": (False, True), "none": (False, False)}[ends] == (
            0 in stages,
            layers + 1 in stages,
        )


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("stages", [range(3), range(3, 5), range(5, 7), range(7)], ids=str)
def test_a_stage_holds_the_numbers_of_its_modules(content: dict[str, Any], stages: range) -> None:
    config = family(content["model_type"]).config_class.from_dict(content)
    model = new_model(config, placement=Placement(None, frozenset(stages)))
    last = config.num_hidden_layers + 1
    ends = {(True, True): "both", (True, False): "first", (False, True): "last", (False, False): "none"}
    layers = range(len([stage for stage in stages if 0 < stage < last]))
    found = held(
        architecture(content), config_with(), Topology(), layers, ends=ends[0 in stages, last in stages]
    )
    assert found.base == numbers(model)


def test_sizes_that_are_none_give_no_architecture() -> None:
    assert Architecture.of({"model_type": "llama"}) is None
    assert Architecture.of(GEMMA | {"hidden_size": "many"}) is None
    assert Architecture.of(GEMMA | {"head_dim": 0}) is None
    assert Architecture.of(BLOOM | {"n_head": 5}) is None
    assert Architecture.of({"model_type": "bloom"}) is None


def test_importing_the_estimate_imports_no_paddle() -> None:
    code = "import sys, trainer.config.estimate; print(json.dumps('paddle' in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) is False
