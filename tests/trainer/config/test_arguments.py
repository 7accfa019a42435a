"""Every argument of PaddleNLP 3.0.0b4 is declared with its type and default (see data/arguments.json)."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.config import json_schema, read_config
from trainer.config.names import ALIASES, DROPPED, tasks_with
from trainer.config.schema import CONFIGS
from trainer.config.sections import SECTIONS
from trainer.config.standing import SUPPORT_KEY, standing_of

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "arguments.json").read_text())
CASES = [(task, name) for name, fact in FACTS.items() for task in fact["defaults"] if name not in ALIASES]
REQUIRED = {"output_dir", "model_name_or_path", "dataset_name_or_path"}
#: The tasks that PaddleNLP has argument files for.
TASKS = ("finetune", "quantize", "dpo", "kto")
SCHEMAS = {task: json_schema(task) for task in CONFIGS}
#: Arguments of this service that PaddleNLP's task does not have.
LORA = {"lora_alpha", "lora_dropout", "rslora_plus", "target_modules"}
PREFIX = {"prefix_projection", "prefix_projection_hidden_size"}
TRAINING = LORA | {"data_seed"}
EXTRA = {
    "finetune": TRAINING | PREFIX,
    "quantize": TRAINING | PREFIX,
    "dpo": TRAINING | {"chat_template", "normalize_logps", "precompute_ref_log_probs"},
    "kto": TRAINING | {"chat_template", "lazy", "precompute_ref_log_probs"},
}
JSON_TYPES = {"bool": "boolean", "int": "integer", "float": "number", "str": "string", "dict": "object"}


@pytest.mark.parametrize(("task", "name"), CASES)
def test_the_argument_is_known_with_paddlenlps_default(task: str, name: str) -> None:
    field = CONFIGS[task].model_fields[name]
    if name in REQUIRED:
        assert field.is_required()
    else:
        assert field.get_default(call_default_factory=True) == FACTS[name]["defaults"][task]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_no_other_arguments(task: str) -> None:
    known = {name for name, fact in FACTS.items() if task in fact["defaults"]} | EXTRA[task]
    assert set(CONFIGS[task].model_fields) - {"tensor_parallel_rank"} == known - set(ALIASES)


@pytest.mark.parametrize(("task", "name"), CASES)
def test_the_argument_has_paddlenlps_type(task: str, name: str) -> None:
    kind = FACTS[name]["type"].removeprefix("optional ").removeprefix("enum ")
    expected = "array" if kind.startswith("list") else JSON_TYPES.get(kind, "string")
    entry = SCHEMAS[task]["properties"][name]
    assert expected in {option.get("type") for option in [entry, *entry.get("anyOf", [])]}


@pytest.mark.parametrize("task", CONFIGS)
def test_every_argument_says_what_it_means_and_what_becomes_of_it(task: str) -> None:
    for name, field in CONFIGS[task].model_fields.items():
        assert field.description, name
        assert "\n" not in field.description, name
        standing = standing_of(field)
        assert standing.kind == "supported" or standing.reason, name


@pytest.mark.parametrize("task", CONFIGS)
def test_the_schema_tells_standing_and_section_of_every_argument(task: str) -> None:
    schema, titles = SCHEMAS[task], {title for title, _ in SECTIONS}
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False
    assert "output_dir" in schema["required"]
    for name, entry in schema["properties"].items():
        assert entry[SUPPORT_KEY]["standing"] in {"supported", "no_effect", "refused"}, name
        assert "default" in entry or name in {*REQUIRED, "lora_path"}, name
        assert entry["x-regatta-section"] in titles, name


def test_the_schema_of_a_refused_argument_gives_the_reason() -> None:
    support = SCHEMAS["finetune"]["properties"]["vera"][SUPPORT_KEY]
    assert support == {"standing": "refused", "reason": "not available in this version: VeRA adapters"}


def test_there_is_no_schema_of_an_unknown_task() -> None:
    with pytest.raises(KeyError):
        json_schema("fintune")


def test_old_names_are_not_arguments_and_their_new_names_are() -> None:
    for old, new in ALIASES.items():
        assert not tasks_with(old)
        assert tasks_with(new)
    assert not any(map(tasks_with, DROPPED))


@pytest.mark.parametrize("task", CONFIGS)
def test_writing_out_every_default_changes_nothing(task: str) -> None:
    needed = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o", "do_train": True}
    if task == "quantize":
        needed = {**needed, "do_train": False, "do_ptq": True}
    if task in ("dpo", "kto"):
        del needed["dataset_name_or_path"]
    if task == "evaluate":
        del needed["do_train"]
    if task == "merge":
        needed = {"lora_path": "a", "output_dir": "o"}
    if task == "export":
        needed = {"model_name_or_path": "m", "output_dir": "o"}
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in CONFIGS[task].model_fields.items()
        if name not in needed
    }
    plain, written = read_config(task, needed), read_config(task, defaults | needed)
    assert plain.config is not None
    assert written.config == plain.config
    assert (written.problems, written.warnings) == ((), ())
