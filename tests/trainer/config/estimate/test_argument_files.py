"""The ten argument files that ship: their steps, tokens and parameters, each worked out here once more."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainer import load_tokenizer
from trainer.config import TaskConfig, preset, preset_names, read_config
from trainer.config.estimate import Estimate, estimate_job
from trainer.config.estimate.fit import GIB, too_large
from trainer.config.preflight import Checked, check_job
from trainer.config.problems import Problem
from trainer.config.topology import Topology
from trainer.token_counts import count_tokens
from trainer.tools.tiny_model import build_tiny_model

TRAINED = [name for name in preset_names() if name[1] not in ("ptq", "gptq")]
QUANTIZED = [name for name in preset_names() if name[1] in ("ptq", "gptq")]
#: Devices that the degrees of a file ask for; the others ask for one.
FEWEST = {("bloom", "sft"): 4, ("gemma", "sft"): 8, ("gemma", "dpo"): 2}
FEWEST |= {("gemma", "kto"): 8, ("gemma", "kto_lora"): 8}
RECORDS = {"train": 90, "dev": 7}


def words(number: int) -> str:
    """Texts of different lengths."""
    return " ".join(f"boat {count} lies at berth {number}" for count in range(number % 9 + 1))


def sft_record(number: int) -> dict[str, Any]:
    return {"src": f"Which boats lie at berth {number}?", "tgt": words(number)}


def dpo_record(number: int) -> dict[str, Any]:
    responses = [words(number), f"nobody knows about {number}"]
    return {"src": [f"Which boats lie at berth {number}?"], "tgt": [], "response": responses, "sort": [1, 0]}


def kto_record(number: int) -> dict[str, Any]:
    record = dpo_record(number)
    return record | {"response": record["response"][:1], "sort": [number % 2]}


RECORD = {"finetune": sft_record, "quantize": sft_record, "dpo": dpo_record, "kto": kto_record}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each task."""
    folder = tmp_path_factory.mktemp("texts")
    for task, record in RECORD.items():
        (folder / task).mkdir()
        ending = "jsonl" if task in ("dpo", "kto") else "json"
        for split, count in RECORDS.items():
            lines = [json.dumps(record(number)) + "\n" for number in range(count)]
            (folder / task / f"{split}.{ending}").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small model of each family, with as many heads as the widest file splits."""
    folder = tmp_path_factory.mktemp("models")
    sizes: dict[str, Any] = {"vocab_size": 512, "num_hidden_layers": 1, "num_attention_heads": 8}
    gemma: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "head_dim": 8,
        "num_key_value_heads": 1,
    }
    return {
        "gemma": build_tiny_model("gemma", folder / "gemma", **sizes, **gemma),
        "bloom": build_tiny_model("bloom", folder / "bloom", **sizes, hidden_size=64),
    }


def argument_file(family: str, name: str, data: Path, **changes: Any) -> tuple[str, dict[str, Any]]:
    """Its task and arguments: the paths of the data put right, and perhaps more."""
    found = preset(family, name)
    folder = data / found.task
    paths = {"dataset_name_or_path": str(folder)}
    if found.task in ("dpo", "kto"):
        paths = {f"{split}_dataset_path": str(folder / f"{split}.jsonl") for split in RECORDS}
    return found.task, found.config | paths | changes


def config_of(task: str, arguments: dict[str, Any]) -> TaskConfig:
    reading = read_config(task, arguments)
    assert reading.config is not None, reading.problems
    return reading.config


def estimate_on_a_tiny_model(
    family: str, name: str, data: Path, models: dict[str, Path], devices: int
) -> Estimate:
    task, arguments = argument_file(family, name, data, model_name_or_path=str(models[family]))
    config = config_of(task, arguments)
    checked = check_job(config, None, data, devices)
    assert checked.problems == ()
    counted = count_tokens(config)  # type: ignore[arg-type]
    return estimate_job(checked, Topology.of(config, devices), "gpu", counted)


@dataclass(frozen=True)
class Tokens:
    """Of one example."""

    all: int
    learned: int


def tokens_of(task: str, number: int, model: Path) -> Tokens:
    """A position is there for every token but the last one of a text, which nothing follows. The prompt has
    the tokenizer's special tokens, an answer one EOS.
    """
    tokenizer = load_tokenizer(model)
    record = RECORD[task](number)
    prompt = record["src"] if isinstance(record["src"], str) else record["src"][0]
    answers = record.get("response") or [record["tgt"]]
    before = len(tokenizer.encode(prompt))
    learned = sum(len(tokenizer.encode(text, add_special_tokens=False)) + 1 for text in answers)
    return Tokens(before - 1 + learned, learned)


def packs(lengths: list[int], most: int) -> int:
    """Rows that examples fill, in their order."""
    count, room = 0, 0
    for length in lengths:
        if length > room:
            count, room = count + 1, most
        room -= length
    return count


@pytest.mark.parametrize(("family", "name"), preset_names())
def test_tokens_are_those_of_the_records(family: str, name: str, data: Path, models: dict[str, Path]) -> None:
    found = estimate_on_a_tiny_model(family, name, data, models, FEWEST.get((family, name), 1))
    assert found.data is not None
    evaluated = {"dev"} if preset(family, name).config.get("do_eval") else set[str]()
    assert set(found.data) == {"train"} | evaluated
    for split, counted in found.data.items():
        expected = [tokens_of(preset(family, name).task, n, models[family]) for n in range(RECORDS[split])]
        assert (counted.records, counted.examples) == (RECORDS[split], RECORDS[split])
        assert counted.sampled is None
        assert counted.tokens == sum(example.all for example in expected)
        assert counted.label_tokens == sum(example.learned for example in expected)
        assert counted.longest == max(example.all for example in expected)


@pytest.mark.parametrize("devices", ["fewest", "eight"])
@pytest.mark.parametrize(("family", "name"), TRAINED)
def test_steps_follow_from_examples_batch_accumulation_and_devices(
    family: str, name: str, devices: str, data: Path, models: dict[str, Path]
) -> None:
    task, arguments = argument_file(family, name, data)
    count = 8 if devices == "eight" else FEWEST.get((family, name), 1)
    found = estimate_on_a_tiny_model(family, name, data, models, count)
    lengths = [tokens_of(task, number, models[family]).all for number in range(RECORDS["train"])]
    rows = packs(lengths, arguments["max_seq_len"]) if "max_seq_len" in arguments else len(lengths)
    data_ways = count // arguments.get("tensor_parallel_degree", 1)
    step = arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"] * data_ways
    an_epoch = math.ceil(rows / step)
    steps = arguments.get("max_steps") or an_epoch * arguments["num_train_epochs"]
    assert found.optimizer_steps == steps
    assert found.tokens_per_step == round(sum(lengths) / an_epoch)
    assert found.run_tokens == round(sum(lengths) * steps / an_epoch)


@pytest.mark.parametrize(("family", "name"), QUANTIZED)
def test_quantization_takes_no_steps(family: str, name: str, data: Path, models: dict[str, Path]) -> None:
    found = estimate_on_a_tiny_model(family, name, data, models, 1)
    assert found.optimizer_steps is found.tokens_per_step is found.run_tokens is None


GEMMA_2B = 2_506_172_416
BLOOMZ_7B1 = 7_069_016_064

#: Inputs plus outputs of all linear layers of a decoder layer; a low-rank pair has rank times as many.
#: BLOOM: query_key_value, dense, dense_h_to_4h, dense_4h_to_h.
BLOOM_SIDES = (4096 + 12288) + (4096 + 4096) + (4096 + 16384) + (16384 + 4096)
#: Gemma: q and o; k and v of one head of 256; gate, up, down.
GEMMA_SIDES = 2 * (2048 + 2048) + 2 * (2048 + 256) + 3 * (2048 + 16384)

#: Numbers of the model and of its adapter.
PUBLISHED = {
    ("bloom", "gptq"): (BLOOMZ_7B1, 0),
    ("bloom", "ptq"): (BLOOMZ_7B1, 0),
    ("bloom", "sft"): (BLOOMZ_7B1, 0),
    ("bloom", "lora"): (BLOOMZ_7B1, 30 * 8 * BLOOM_SIDES),
    ("bloom", "pt"): (BLOOMZ_7B1, 128 * 2 * 30 * 4096),  # keys and values of 128 tokens
    ("gemma", "sft"): (GEMMA_2B, 0),
    ("gemma", "dpo"): (GEMMA_2B, 0),
    ("gemma", "dpo_lora"): (GEMMA_2B, 18 * 64 * GEMMA_SIDES),
    ("gemma", "kto"): (GEMMA_2B, 0),
    ("gemma", "kto_lora"): (GEMMA_2B, 18 * 8 * GEMMA_SIDES),
}


def estimate_by_arguments(task: str, arguments: dict[str, Any]) -> tuple[Estimate, TaskConfig, Topology]:
    config = config_of(task, arguments)
    topology = Topology.of(config)
    return estimate_job(Checked(config), topology, "gpu"), config, topology


@pytest.mark.parametrize("named", ["by its name", "by its config.json"])
@pytest.mark.parametrize(("family", "name"), PUBLISHED)
def test_parameters_are_those_of_the_published_model(
    family: str, name: str, named: str, data: Path, tmp_path: Path
) -> None:
    task, arguments = argument_file(family, name, data)
    if named == "by its config.json":
        shape = {
            "model_type": "bloom",
            "vocab_size": 250880,
            "hidden_size": 4096,
            "n_layer": 30,
            "n_head": 32,
        }
        if family == "gemma":
            shape = {"model_type": "gemma", "vocab_size": 256000, "hidden_size": 2048}
            shape |= {"intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8}
            shape |= {"num_key_value_heads": 1, "head_dim": 256}
        (tmp_path / "config.json").write_text(json.dumps(shape))
        arguments["model_name_or_path"] = str(tmp_path)
    found, _, _ = estimate_by_arguments(task, arguments)
    model, adapter = PUBLISHED[family, name]
    assert found.parameters == model + adapter
    assert found.adapter_parameters == adapter
    trained = 0 if (family, name) in QUANTIZED else adapter or model
    assert found.trainable_parameters == trained


def refusal(task: str, arguments: dict[str, Any], largest: int) -> Problem:
    found, config, topology = estimate_by_arguments(task, arguments)
    problem = too_large(found, config, topology, "gpu", largest)
    assert problem is not None
    return problem


def parts_in(message: str) -> tuple[float, dict[str, float]]:
    """The sum that a message names, and its parts, in GiB."""
    total, terms = re.findall(r"^needs (\S+) GiB on each gpu device = (.*) \(most at ", message)[0]
    parts = re.findall(r"([a-z' ]+) (\d+(?:\.\d)?) (GiB|MiB)(?: \+ |$)", terms)
    return float(total), {name: float(size) / (1024 if unit == "MiB" else 1) for name, size, unit in parts}


def assert_adds_up(total: float, parts: dict[str, float]) -> None:
    """As far as rounding goes."""
    rounding = 0.05 * (len(parts) + 1)
    assert abs(total - sum(parts.values())) <= rounding


def test_gemma_7b_trained_whole_does_not_fit_into_16_gib(data: Path) -> None:
    one = {"model_name_or_path": "google/gemma-7b", "sharding_parallel_degree": 1}
    problem = refusal(*argument_file("gemma", "sft", data, **one), 16 * GIB)
    total, parts = parts_in(problem.msg)
    parameters = 8_537_680_896
    # fp16 with level O2: 2 bytes a weight and a gradient, a float32 copy, and two float32 moments.
    bytes_each = {"weights": 2, "gradients": 2, "master weights": 4, "optimizer state": 8}
    for name, size in bytes_each.items():
        assert parts[name] == round(parameters * size / GIB, 1)
    assert_adds_up(total, parts)
    assert problem.msg.endswith("the largest that is known has 16.0 GiB")
    assert "smaller, but not enough" in (problem.hint or "")
    assert "lora true" in (problem.hint or "")


def test_a_batch_that_does_not_fit_is_told_to_be_smaller(data: Path) -> None:
    task, arguments = argument_file("bloom", "lora", data, per_device_train_batch_size=256)
    problem = refusal(task, arguments, 80 * GIB)
    total, parts = parts_in(problem.msg)
    # With recompute each layer keeps its input: 2 bytes for each of 4096 numbers of each token.
    kept = 30 * 256 * arguments["max_length"] * 4096 * 2 / GIB
    assert parts["activations"] > kept > 80
    assert_adds_up(total, parts)
    assert "It would fit with" in (problem.hint or "")
    assert "per_device_train_batch_size 1 (" in (problem.hint or "")

    found, config, topology = estimate_by_arguments(task, arguments | {"per_device_train_batch_size": 1})
    assert too_large(found, config, topology, "gpu", 80 * GIB) is None
