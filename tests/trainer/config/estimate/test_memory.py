"""The memory that is predicted is what training takes."""

from pathlib import Path

from tests.trainer.config.estimate.runs import LIMIT, Case, compare

LORA = {"lora": True}
CASES = (
    Case("sft", "tiny gemma", 2, 256),
    Case("lora", "tiny gemma", 2, 256, arguments=LORA),
    Case("small sft", "small gemma", 2, 256),
    Case("small lora", "small gemma", 2, 256, arguments=LORA),
)


def test_full_training_and_lora_take_what_was_predicted(tmp_path: Path) -> None:
    errors = {case.name: found.error for case, found in compare(CASES, tmp_path)}
    assert errors.keys() == {case.name for case in CASES}
    assert max(map(abs, errors.values())) <= LIMIT, errors
