"""Whatever comes, reading answers; and what it accepts means the same when it is read again."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.config import TASKS, read_config
from trainer.config.explain import choices
from trainer.config.names import ALIASES
from trainer.config.preflight import Roots, check_job, path_problems
from trainer.config.schema import CONFIGS

NAMES = sorted({name for config in CONFIGS.values() for name in config.model_fields} | set(ALIASES))
SECRET = "s3cret-value"

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 3)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["true", "no", "3e-05", "1", "-1", "epoch", "steps", "stage2", "O2", "nan", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
any_config = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=12), json_values, max_size=12)


extreme_config = st.fixed_dictionaries(
    {},
    optional={
        "num_train_epochs": st.floats(0, 1e6, exclude_min=True),
        "learning_rate": st.floats(0, allow_infinity=False),
        "max_steps": st.just(-1) | st.integers(1, 2**63 - 1),
        "warmup_steps": st.integers(0, 2**63 - 1),
        "per_device_train_batch_size": st.integers(1, 2**63 - 1),
        "gradient_accumulation_steps": st.integers(1, 2**63 - 1),
        "save_steps": st.integers(1, 2**63 - 1),
        "dataloader_drop_last": st.booleans(),
        "output_dir": st.text(min_size=1).filter(lambda text: "\x00" not in text and text.strip()),
    },
)


def plausible(task: str) -> st.SearchStrategy[dict[str, Any]]:
    """Configs with values of the right kind, many of which are accepted."""
    by_name: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in CONFIGS[task].model_fields.items():
        options: list[Any] = [None, True, False, 0, 1, 2, 100, 0.5, 1e-5, "1", "text"]
        default = [] if field.is_required() else [field.get_default(call_default_factory=True)]
        by_name[name] = st.sampled_from([*(choices(field.annotation) or options), *default])
    needed: dict[str, st.SearchStrategy[Any]] = {
        "model_name_or_path": st.just("m"),
        "output_dir": st.just("o"),
    }
    if task in ("finetune", "quantize"):
        needed["dataset_name_or_path"] = st.just("d")
    if task == "quantize":
        needed["do_ptq"] = st.just(True)
    optional = {name: value for name, value in by_name.items() if name not in needed}
    few = st.sets(st.sampled_from(sorted(optional)), max_size=5)
    return few.flatmap(lambda names: st.fixed_dictionaries(needed | {name: optional[name] for name in names}))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(task=st.sampled_from(TASKS) | st.text(max_size=8), raw=any_config)
def test_reading_never_raises_and_says_what_can_be_sent(task: str, raw: dict[str, Any]) -> None:
    reading = read_config(task, raw)
    assert (reading.config is None) == bool(reading.problems)
    for problem in (*reading.problems, *reading.warnings):
        json.dumps(problem.as_dict(), allow_nan=False, ensure_ascii=False).encode("utf-8")
        assert len(problem.msg) < 1000


def default_of(task: str, name: str) -> Any:
    return CONFIGS[task].model_fields[name].get_default(call_default_factory=True)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), task=st.sampled_from(sorted(CONFIGS)))
def test_reading_what_was_resolved_changes_nothing(data: st.DataObject, task: str) -> None:
    raw = data.draw(plausible(task))
    reading = read_config(task, raw)
    if reading.config is None:
        return
    resolved = json.loads(json.dumps(reading.config.resolved(), allow_nan=False))
    again = read_config(task, resolved)
    assert again.problems == ()
    assert again.config == reading.config
    assert again.config is not None
    assert again.config.resolved() == resolved
    derived = {name for name in resolved if name not in raw and resolved[name] != default_of(task, name)}
    # A derived value that is written out may be told to have no effect; nothing else is new.
    assert {warning.loc[0] for warning in set(again.warnings) - set(reading.warnings)} <= derived


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=extreme_config)
def test_checking_a_job_never_raises(roots: Roots, raw: dict[str, Any]) -> None:
    paths = {"model_name_or_path": "gemma", "dataset_name_or_path": "sft", "output_dir": "out"}
    config = read_config("finetune", paths | raw).config
    assert config is not None
    checked = check_job(config, roots)
    json.dumps([problem.as_dict() for problem in (*checked.problems, *checked.warnings)], allow_nan=False)
    json.dumps(checked.statistics, allow_nan=False)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=any_config)
def test_looking_at_the_files_of_any_config_never_raises(roots: Roots, raw: dict[str, Any]) -> None:
    found = path_problems(read_config("finetune", raw), roots)
    json.dumps([problem.as_dict() for problem in found], allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(raw=any_config, secret=st.sampled_from(["aistudio_token", "wandb_api_key", "wandb_http_proxy"]))
def test_a_secret_is_never_echoed(raw: dict[str, Any], secret: str) -> None:
    assert SECRET not in repr(read_config("finetune", {**raw, secret: SECRET}))
    assert SECRET not in repr(read_config("finetune", {**raw, secret: [SECRET]}))
