"""What is known of a model that a job is to start from: its family, and whether it brings a chat template."""

from dataclasses import dataclass
from pathlib import Path

from api.openai_face.identifiers import bare
from api.sources import Sources
from trainer.config.chat_templates import NONE, chat_template
from trainer.config.known_models import KNOWN_MODELS
from trainer.config.preflight import Roots
from trainer.config.preflight.chat_template import check_chat_template
from trainer.config.preflight.folder import FolderError, json_object, plain_file
from trainer.config.preflight.hub import HubName, Part, cache_folder, cached_folder
from trainer.config.preflight.paths import Finder

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
    finder = Finder("model", roots.models)
    folder = finder.folder("model", text)
    if isinstance(folder, Path):
        return ModelFacts(_family(folder, finder), _has_template(folder, finder))
    name = HubName.parse(text)
    known = KNOWN_MODELS.get(name.repository) if name else None
    if name is None or known is None:
        return ModelFacts()
    if cached := cached_folder(name, Part.TOKENIZER):
        return ModelFacts(known.model_type, _has_template(cached, finder.or_inside(cache_folder())))
    return ModelFacts(known.model_type, name.repository.endswith(INSTRUCTED))


def _family(folder: Path, finder: Finder) -> str:
    try:
        return str(json_object(plain_file(folder, CONFIG_FILE, finder)).get("model_type"))
    except (FolderError, OSError):
        return ModelFacts.family


def _has_template(folder: Path, finder: Finder) -> bool:
    return not check_chat_template(None, folder, finder) and chat_template(None, folder) is not None
