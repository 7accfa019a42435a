"""The check of task merge: the adapter, its base model, and where the result goes."""

from pathlib import Path

from trainer.config.adapters import ADAPTER_CONFIG, LoraSettings
from trainer.config.preflight.adapter import TOKENIZER_FILES, check_adapter
from trainer.config.preflight.folder import FolderError, check_if_there, problem_of
from trainer.config.preflight.hub import Part
from trainer.config.preflight.model import check_model
from trainer.config.preflight.paths import Roots
from trainer.config.preflight.places import Checked, Places
from trainer.config.problems import Problem
from trainer.config.schema import MergeConfig

_NAME = "model_name_or_path"
_NAME_IT = "Name the folder of the base model."


def check_merge(config: MergeConfig, roots: Roots | None, base: Path | None) -> Checked:
    """Check everything that `config` refers to; see `check_job`."""
    check = Places(config, roots, base)
    folder = check.folder(check.models, "lora_path", config.lora_path)
    if folder:
        settings, problems = check_adapter(folder, check.models, "lora_path")
        check.problems += problems
        if isinstance(settings, LoraSettings):
            _check_base(check, settings, folder)
    check.new_model()
    return check.checked()


def _check_base(check: Places, settings: LoraSettings, adapter: Path) -> None:
    given = check.config.model_name_or_path or settings.base
    if given is None:
        msg = f"not set, and {ADAPTER_CONFIG} of {adapter} names no base model"
        check.problems.append(Problem((_NAME,), msg, _NAME_IT))
        return
    check.changes[_NAME] = given
    folder, inside = check.hub_folder(check.models, _NAME, given, Part.MODEL)
    if not check.config.model_name_or_path:
        check.named_by_adapter(_NAME, adapter, _NAME_IT)
    if folder:
        problems, _, check.statistics["model"] = check_model(folder, inside, None)
        check.problems += problems
        try:
            check_if_there(folder, TOKENIZER_FILES, inside)
        except (FolderError, OSError) as error:
            check.problems.append(problem_of((_NAME,), error))
