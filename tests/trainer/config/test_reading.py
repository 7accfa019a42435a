import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.config import FinetuneConfig, Problem, Reading, load_config, read_config

Read = Callable[..., Reading]


def only(problems: tuple[Problem, ...]) -> Problem:
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("learning_rate", "3e-05", 3e-5),
        ("learning_rate", 1, 1.0),
        ("num_train_epochs", " 2 ", 2.0),
        ("max_steps", "10", 10),
        ("max_steps", "-1", -1),
        ("do_eval", "True", True),
        ("do_eval", "no", False),
        ("do_eval", "T", True),
        ("do_eval", 1, True),
        ("do_eval", "0", False),
        ("no_recompute_layers", [0, "2"], [0, 2]),
        ("no_recompute_layers", 3, [3]),
        ("report_to", "none", ["none"]),
        ("model_init_kwargs", {"a": [1]}, {"a": [1]}),
        ("skip_data_intervals", [], []),
        ("metric_for_best_model", "eval_accuracy", "eval_accuracy"),
    ],
)
def test_values_are_read_as_paddlenlp_reads_them(name: str, given: Any, value: Any) -> None:
    raw = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o", name: given}
    parsed = FinetuneConfig.model_validate(raw)
    assert getattr(parsed, name) == value
    assert type(getattr(parsed, name)) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "msg", "hint"),
    [
        ("learning_rate", -1.0, "got -1.0, expected a number >= 0", "Use for example 2e-05."),
        ("learning_rate", True, "got true, expected a number >= 0", "Use for example 2e-05."),
        ("learning_rate", "fast", 'got "fast", expected a number >= 0', "Use for example 2e-05."),
        (
            "learning_rate",
            float("nan"),
            "got NaN, expected a number >= 0",
            "NaN and Infinity are not JSON numbers.",
        ),
        ("learning_rate", float("inf"), "got Infinity, expected a number >= 0", None),
        ("learning_rate", "1e999", 'got "1e999", expected a number >= 0', None),
        ("learning_rate", "nan", 'got "nan", expected a number >= 0', None),
        ("learning_rate", 10**400, None, "The number is too large."),
        ("warmup_steps", 1.0, "got 1.0, expected a whole number >= 0", "Write 1."),
        ("warmup_steps", "1.0", 'got "1.0", expected a whole number >= 0', None),
        ("warmup_steps", True, "got true, expected a whole number >= 0", None),
        ("warmup_steps", 2**63, None, "The number is too large."),
        ("warmup_steps", "1_0", 'got "1_0", expected a whole number >= 0', None),
        (
            "max_steps",
            0,
            "got 0, expected -1 (not set) or a whole number >= 1",
            "Leave it out if it is not needed.",
        ),
        ("per_device_train_batch_size", 0, "got 0, expected a whole number >= 1", "Use for example 8."),
        ("warmup_ratio", 2, "got 2, expected a number >= 0 and <= 1", None),
        ("num_train_epochs", 0, "got 0, expected a number > 0 and <= 1000000", None),
        ("do_eval", "maybe", 'got "maybe", expected true or false', "Write true or false."),
        ("do_eval", 2, "got 2, expected true or false", None),
        ("do_eval", [True], "got [true], expected true or false", None),
        (
            "evaluation_strategy",
            "epochs",
            'got "epochs", expected one of no, steps, epoch',
            "Did you mean epoch?",
        ),
        ("evaluation_strategy", 5, "got 5, expected one of no, steps, epoch", None),
        ("fp16_opt_level", "o2", None, "Did you mean O2?"),
        ("lr_scheduler_type", "Cosine", None, "Did you mean cosine?"),
        ("optim", "adamw_torch", None, "Did you mean adamw?"),
        ("optim", "sgd", None, 'Use for example "adamw".'),
        ("fp16_opt_level", "O3", 'got "O3", expected one of O0, O1, O2', None),
        ("metric_for_best_model", 7, "got 7, expected text", 'Put it in quotes: "7".'),
        ("output_dir", "", 'got "", expected a path', "The text is empty."),
        ("output_dir", "a\x00b", r'got "a\u0000b", expected a path', "The text has a NUL character."),
        ("output_dir", "\ud800", None, "The text has an unpaired surrogate."),
        ("no_recompute_layers", [1, "x"], 'got [1, "x"], expected a list of whole numbers', None),
        ("no_recompute_layers", {}, "got {}, expected a list of whole numbers", None),
        (
            "skip_data_intervals",
            [[1, None]],
            "got [[1, null]], expected a list of lists of whole numbers",
            None,
        ),
        ("model_init_kwargs", "a", 'got "a", expected a JSON object', None),
        ("model_init_kwargs", {"a": float("inf")}, None, "It holds something that is not JSON."),
        ("sharding", "stage4", None, "Unknown: stage4."),
        ("sharding_parallel_config", "split_param enable_all", None, "Unknown: enable_all."),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected_and_the_remedy(
    read: Read, name: str, given: Any, msg: str | None, hint: str | None
) -> None:
    reading = read(**{name: given})
    assert reading.config is None
    problem = only(reading.problems)
    assert problem.loc == (name,)
    assert msg is None or problem.msg == msg
    assert hint is None or problem.hint == hint
    str(problem).encode("utf-8")


def test_a_long_value_is_shortened(read: Read) -> None:
    problem = only(read(do_eval="x" * 10_000).problems)
    assert len(problem.msg) < 120


def test_all_problems_are_collected(read: Read) -> None:
    reading = read(learing_rate=1, seed="x", fp16=True, bf16=True, vera=True, src_length=9000, max_length=10)
    assert {problem.loc[0] for problem in reading.problems} == {
        "learing_rate",
        "seed",
        "fp16",
        "vera",
        "src_length",
    }


def test_rules_keep_silent_about_arguments_that_cannot_be_read(read: Read) -> None:
    assert only(read(src_length=9000, max_length="x").problems).loc == ("max_length",)


def test_null_means_not_set(read: Read) -> None:
    reading = read(max_steps=None, learning_rate=None, lora_path=None, no_such_name_is_still_unknown=None)
    assert only(reading.problems).loc == ("no_such_name_is_still_unknown",)
    plain = read(max_steps=None, learning_rate=None, lora_path=None)
    assert plain.config == read().config


def test_required_arguments_are_asked_for_with_their_meaning() -> None:
    problems = read_config("finetune", {"do_train": True, "output_dir": None}).problems
    assert {problem.loc for problem in problems} == {
        ("model_name_or_path",),
        ("dataset_name_or_path",),
        ("output_dir",),
    }
    assert all(problem.msg == "not set, expected a path" for problem in problems)
    assert any("train.json" in problem.hint for problem in problems)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learing_rate", "learning_rate"),
        ("lora_r", "lora_rank"),
        ("lr", "learning_rate"),
        ("epochs", "num_train_epochs"),
        ("batch_size", "per_device_train_batch_size"),
        ("Learning_Rate", "learning_rate"),
        ("eval_strategy", "evaluation_strategy"),
        ("gradient_checkpointing", "recompute"),
        ("learning-rate", "learning_rate"),
        ("dataset", "dataset_name_or_path"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(read: Read, key: str, meant: str) -> None:
    problem = only(read(**{key: 1}).problems)
    assert problem.loc == (key,)
    assert problem.hint == f"Did you mean {meant}?"


def test_a_prefix_of_a_name_is_not_the_name(read: Read) -> None:
    assert only(read(learning=1).problems).loc == ("learning",)


def test_an_unknown_name_without_likeness_points_at_the_schema(read: Read) -> None:
    assert only(read(zzzzqqqq=1).problems).hint == (
        "docs/config.md and GET /schemas/finetune list all names."
    )


@pytest.mark.parametrize(
    ("key", "msg", "hint"),
    [
        (
            "beta",
            "beta is an argument of tasks dpo, kto, not of task finetune",
            "Leave it out, or set task to dpo.",
        ),
        (
            "max_seq_len",
            "max_seq_len is an argument of tasks dpo, kto, not of task finetune",
            "In task finetune use max_length.",
        ),
        (
            "do_gptq",
            "do_gptq is an argument of task quantize, not of task finetune",
            "Leave it out, or set task to quantize.",
        ),
    ],
)
def test_a_name_of_another_task_says_which(read: Read, key: str, msg: str, hint: str) -> None:
    problem = only(read(**{key: 1}).problems)
    assert (problem.msg, problem.hint) == (msg, hint)


def test_thousands_of_unknown_names_are_counted_not_listed(read: Read) -> None:
    problems = read(**{f"name_{n}": 1 for n in range(5000)}).problems
    assert len(problems) == 21
    assert problems[-1].msg == "4980 more names are unknown"


def test_a_dropped_name_says_what_to_do_instead(read: Read) -> None:
    assert only(read(tgt_length=100).problems).hint == "Set max_length to src_length plus tgt_length."


def test_an_old_name_works_with_a_warning_that_names_the_new_one(read: Read) -> None:
    reading = read(task_name_or_path="other", dataset_name_or_path=None, intokens_max_length="4096")
    assert isinstance(reading.config, FinetuneConfig)
    assert reading.config.dataset_name_or_path == "other"
    assert reading.config.max_length == 4096
    assert {warning.hint for warning in reading.warnings} == {
        "Write dataset_name_or_path.",
        "Write max_length.",
    }


def test_an_old_and_a_new_name_may_not_disagree(read: Read) -> None:
    problem = only(read(intokens_max_length=100, max_length=2048).problems)
    assert (
        problem.msg == "intokens_max_length 100 and max_length 2048 are the same argument, expected one value"
    )


def test_secrets_are_neither_kept_nor_shown() -> None:
    raw = {
        "model_name_or_path": "m",
        "dataset_name_or_path": "d",
        "output_dir": "o",
        "do_train": True,
        "aistudio_token": "s3cret-token",
        "wandb_api_key": ["s3cret-key"],
    }
    reading = read_config("finetune", raw)
    assert reading.config is not None
    assert {warning.loc[0] for warning in reading.warnings} == {"aistudio_token", "wandb_api_key"}
    assert "s3cret" not in repr(reading)
    assert "s3cret" not in json.dumps(reading.config.resolved())
    assert raw["aistudio_token"] == "s3cret-token"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vera", True),
        ("lokr", True),
        ("optim", "adamw_mini"),
        ("weight_quantize_algo", "nf4"),
        ("continue_training", False),
        ("autoregressive", True),
        ("do_predict", True),
        ("do_export", True),
        ("benchmark", True),
        ("device", "xpu"),
        ("save_to_aistudio", True),
    ],
)
def test_what_would_change_the_result_is_refused_with_a_reason(read: Read, name: str, value: Any) -> None:
    reading = read(**{name: value})
    problem = next(problem for problem in reading.problems if problem.loc == (name,))
    assert problem.msg.startswith(f"got {json.dumps(value)}: ")
    assert problem.hint.startswith("Leave it out")


def test_do_export_points_to_the_task(read: Read) -> None:
    (problem,) = read(do_export=True).problems
    assert problem.loc == ("do_export",)
    assert "task export, with this job's result as the model" in problem.msg


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recompute_use_reentrant", True),
        ("use_flash_attention", True),
        ("disable_tqdm", False),
        ("sharding_comm_buffer_size_MB", 256),
        ("lora_rank", 64),
        ("max_seq_length", 512),
        ("unified_checkpoint_config", "async_save remove_master_weight"),
        ("fuse_sequence_parallel_allreduce", True),
    ],
)
def test_what_changes_nothing_is_accepted_with_a_warning_that_says_why(
    read: Read, name: str, value: Any
) -> None:
    reading = read(**{name: value})
    assert reading.config is not None
    warning = only(reading.warnings)
    assert warning.loc == (name,)
    assert " has no effect: " in warning.msg


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("disable_tqdm", True),
        ("unified_checkpoint", True),
        ("lora", False),
        ("tensor_parallel_degree", 1),
        ("sharding_parallel_degree", 1),
        ("chat_template", "none"),
        ("eval_accumulation_steps", 16),
        ("zero_padding", True),
        ("count_trained_tokens", True),
        ("report_to", "none"),
        ("device", "cpu"),
    ],
)
def test_what_happens_anyway_needs_no_word(read: Read, name: str, value: Any) -> None:
    reading = read(**{name: value})
    assert reading.config is not None
    assert reading.warnings == ()


@pytest.mark.parametrize("raw", [None, [], "text", 5])
def test_a_config_that_is_not_an_object_is_a_problem(raw: Any) -> None:
    assert "expected a JSON object" in only(read_config("finetune", raw).problems).msg


def test_a_whole_job_in_place_of_its_arguments_is_one_problem(read: Read) -> None:
    problem = only(read(task="finetune", name="first", config={"max_steps": 3}).problems)
    assert problem.loc == ("config",)
    assert problem.hint == "Give what is inside config."


def test_an_unknown_task_is_a_problem() -> None:
    assert only(read_config("fintune", {}).problems).hint == "Did you mean finetune?"


def test_a_config_cannot_be_changed(read: Read) -> None:
    config = read().config
    assert config is not None
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 7  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sft.json"
    path.write_text(
        '{"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o", "do_train": true}'
    )
    return path


def test_a_file_is_read_and_overridden(file: Path) -> None:
    overrides = ["max_steps=10", "learning_rate=3e-05", "output_dir=a=b", "do_train=True", "seed=null"]
    overrides += ["run_name=7", "no_recompute_layers=[1, 2]", 'optim="adamw"', "report_to=[none"]
    reading = load_config("finetune", file, overrides)
    assert isinstance(reading.config, FinetuneConfig)
    assert (reading.config.max_steps, reading.config.learning_rate) == (10, 3e-5)
    assert (reading.config.output_dir, reading.config.seed) == ("a=b", 42)
    assert (reading.config.run_name, reading.config.optim) == ("7", "adamw")
    assert (reading.config.no_recompute_layers, reading.config.report_to) == ([1, 2], ["[none"])


def test_an_override_needs_an_equals_sign(file: Path) -> None:
    assert only(load_config("finetune", file, ["max_steps"]).problems).loc == ("--set",)


@pytest.mark.parametrize(
    ("text", "msg"),
    [
        (b'{"learning_rate": NaN}', "NaN is not a JSON number"),
        (b'{"learning_rate": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"seed": 1, "seed": 2}', "the key 'seed' appears twice"),
        (b'{"seed": 1 "fp16": 2}', "Expecting ',' delimiter (column 12)"),
        (b'{"seed": "\xff"}', "byte 10 is not UTF-8 text"),
        (b"[1]", "expected a JSON object"),
        (b"", "Expecting value (column 1)"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_not_strict_json_is_a_problem(tmp_path: Path, text: bytes, msg: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(text)
    assert msg in only(load_config("finetune", path).problems).msg


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    problem = only(load_config("finetune", tmp_path / "none.json").problems)
    assert "No such file" in problem.msg
