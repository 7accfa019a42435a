"""The check of task export: the model, and where the graph goes."""

from pathlib import Path

from trainer.config.adapters import is_adapter
from trainer.config.preflight.hub import Part
from trainer.config.preflight.model import MODEL, TOKENIZER, check_model, check_tokenizer
from trainer.config.preflight.paths import Roots
from trainer.config.preflight.places import Checked, Places
from trainer.config.problems import Problem
from trainer.config.schema import ExportConfig


def check_export(config: ExportConfig, roots: Roots | None, base: Path | None) -> Checked:
    """Check everything that `config` refers to; see `check_job`."""
    check = Places(config, roots, base)
    folder, inside = check.hub_folder(check.models, MODEL, config.model_name_or_path, Part.MODEL)
    if folder and is_adapter(folder):
        msg = f"{folder} is an adapter, expected a whole model"
        hint = "Merge it first: task merge with this folder as lora_path, or regatta merge ADAPTER DIR."
        check.problems.append(Problem((MODEL,), msg, hint))
    elif folder:
        problems, _, check.statistics["model"] = check_model(folder, inside, config)
        tokenizer = inside.references.get((TOKENIZER, config.model_name_or_path), folder)
        check.problems += [*problems, *(check_tokenizer(tokenizer, inside) if tokenizer else ())]
    check.apart()
    return check.checked()
