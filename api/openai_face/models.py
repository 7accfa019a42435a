"""What is known of a model that a job is to start from: its family, and whether it brings a chat template."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.openai_face.identifiers import bare
from api.sources import Sources
from trainer.config.chat_templates import NONE, chat_template
from trainer.config.known_models import KNOWN_MODELS
from trainer.config.preflight import Roots
from trainer.config.preflight.hub import HubName, Part, cached_folder
from trainer.config.preflight.paths import Finder
from trainer.config.problems import ConfigError

MOST_STEPS = 50
"""How far a model is followed from job to job."""
CONFIG_FILE = "config.json"
INSTRUCTED = "-it"
"""How the names of published models end that have a chat template."""


@dataclass(frozen=True)
class ModelFacts:
    """Of a model that cannot be found: what is most common; the check of the job refuses it."""

    family: str = "gemma"
    has_template: bool = False


def model_facts(text: str, roots: Roots, sources: Sources, steps: int = 0) -> ModelFacts:
    """Find out about the model that a config names: a folder, a name on the hub, or `job:<id>`."""
    job = sources.job(bare(text, "job:").partition("/")[0]) if text.startswith("job:") else None
    if job is not None and steps < MOST_STEPS:
        base = model_facts(str(job.config.get("model_name_or_path")), roots, sources, steps + 1)
        template = job.config.get("chat_template")
        return ModelFacts(base.family, base.has_template if template is None else template != NONE)
    folder = Finder("model", roots.models).folder("model", text)
    if isinstance(folder, Path):
        return _of_folder(folder)
    name = HubName.parse(text)
    known = KNOWN_MODELS.get(name.repository) if name else None
    if name is None or known is None:
        return ModelFacts()
    if cached := cached_folder(name, Part.TOKENIZER):
        return ModelFacts(known.model_type, _of_folder(cached).has_template)
    return ModelFacts(known.model_type, name.repository.endswith(INSTRUCTED))


def _of_folder(folder: Path) -> ModelFacts:
    try:
        config: Any = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        return ModelFacts(str(config["model_type"]), chat_template(None, folder) is not None)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ConfigError):
        return ModelFacts()
