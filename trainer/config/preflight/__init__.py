"""What can be known about a job before a device is taken: its paths, its model, every line of its data."""

from dataclasses import replace
from pathlib import Path

from trainer.config.adapters import LoraSettings, is_adapter
from trainer.config.chat_templates import NONE
from trainer.config.data_files import PREFERENCE_FILES
from trainer.config.preflight.adapter import adapter_changes, check_adapter
from trainer.config.preflight.chat_template import check_chat_template
from trainer.config.preflight.data import check_data
from trainer.config.preflight.export import check_export
from trainer.config.preflight.hub import Part, shape_by_name
from trainer.config.preflight.merge import check_merge
from trainer.config.preflight.model import (
    MODEL,
    TOKENIZER,
    check_model,
    check_tokenizer,
    has_tokenizer,
)
from trainer.config.preflight.paths import Finder, Roots
from trainer.config.preflight.places import Checked, Places
from trainer.config.preflight.preference_data import check_preference_data
from trainer.config.preflight.steps import check_steps
from trainer.config.problems import Problem
from trainer.config.reading import Reading
from trainer.config.schema import (
    DpoConfig,
    ExportConfig,
    KtoConfig,
    MergeConfig,
    QuantizeConfig,
    RecordsConfig,
    SftConfig,
    TaskConfig,
)
from trainer.config.splitting import copied_keys, misfits
from trainer.config.tasks import task_problem
from trainer.config.topology import ONE_PROCESS, Topology, misfit, sharing_with_nobody

PATHS = (
    MODEL,
    TOKENIZER,
    "dataset_name_or_path",
    *PREFERENCE_FILES.values(),
    "output_dir",
    "resume_from_checkpoint",
)
_NAME_BOTH = "Name the base model here, and the adapter in lora_path (or prefix_path)."


def check_job(
    config: TaskConfig, roots: Roots | None, base: Path | None = None, world_size: int | None = None
) -> Checked:
    """Check everything that `config` refers to. Never raises for what a user may have sent.

    Args:
        config: a resolved config, as `read_config` gives it.
        roots: where models and data may lie; relative paths are looked for in them. None: anywhere, relative
            to `base`, and on the hub. A model that is still to be fetched keeps its name, and its files are
            not checked.
        base: the folder of the job (its workspace); without `roots` it defaults to the current folder. With
            roots and without base, output_dir stays relative.
        world_size: how many devices there are for it; None: as few as its parallel degrees need.
    """
    too_few_or_many = misfit(config, config.world_size() if world_size is None else world_size)
    if too_few_or_many:
        world_size = None
    if isinstance(config, RecordsConfig) and not task_problem(config.task):
        quantizing = isinstance(config, QuantizeConfig)
        topology = ONE_PROCESS if quantizing else Topology.of(config, world_size)
        checked = _Check(config, roots, base, topology).run()
    elif isinstance(config, MergeConfig):
        checked = check_merge(config, roots, base)
    elif isinstance(config, ExportConfig):
        checked = check_export(config, roots, base)
    else:
        problem = task_problem(config.task)
        checked = Checked(config, (problem,) if problem else ())
    if too_few_or_many:
        return replace(checked, problems=(too_few_or_many, *checked.problems))
    return checked


def path_problems(reading: Reading, roots: Roots | None, base: Path | None = None) -> list[Problem]:
    """What is wrong with the files that a refused config names, so that it is told with the rest.

    Nothing is said about arguments that `reading` has problems with. Arguments as for `check_job`.
    """
    if reading.draft is None:
        return []
    silent = {problem.loc[0] for problem in reading.problems if problem.loc}
    if MODEL in silent:
        silent.add(TOKENIZER)  # it is taken from the model's folder
    found = check_job(reading.draft, roots, base).problems
    return [problem for problem in found if problem.loc and problem.loc[0] in {*PATHS} - silent]


class _Check(Places):
    """The check of a task that uses data: the steps in order, with what they find."""

    config: RecordsConfig

    def __init__(
        self, config: RecordsConfig, roots: Roots | None, base: Path | None, topology: Topology
    ) -> None:
        super().__init__(config, roots, base)
        self.topology = topology
        self.inside_tokenizer: Finder | None = None
        self.adapter: Path | None = None

    def run(self) -> Checked:
        if warning := sharing_with_nobody(self.config, self.topology):
            self.warnings.append(warning)
        models = self.models
        data = replace(models, kind="data", roots=self.roots.data if self.roots else None)
        self._adapters(models)
        self._model(models)
        self._chat_template(models, data)
        self._data(data)
        if isinstance(self.config, QuantizeConfig):
            self.new_model()
        else:
            self.output()
        checkpoint = self.config.resume_from_checkpoint
        if checkpoint:
            self.folder(models.or_inside(self.base), "resume_from_checkpoint", checkpoint)
        return self.checked()

    def _adapters(self, finder: Finder) -> None:
        """The saved adapter to begin with; for evaluate and quantize also one that is named as the model."""
        given = self.config.model_name_or_path
        named = finder.folder("model_name_or_path", given) if finder.finds(given) else None
        if isinstance(named, Path) and is_adapter(named):
            self._adapter_as_model(finder, named)
        for name in ("lora_path", "prefix_path"):
            given = getattr(self.config, name, None)
            folder = self.folder(finder, name, given) if given else None
            if folder:
                settings, problems = check_adapter(folder, finder, name)
                self.problems += problems
                if settings:
                    self.changes |= {**adapter_changes(settings, folder), name: self.changes[name]}

    def _adapter_as_model(self, finder: Finder, folder: Path) -> None:
        name = "model_name_or_path"
        if self.config.task not in ("evaluate", "quantize"):
            msg = f"{folder} is an adapter, expected a whole model"
            self.problems.append(Problem((name,), msg, _NAME_BOTH))
            return
        settings, problems = check_adapter(folder, finder, name)
        self.problems += problems
        if settings is None:
            return
        if settings.base is None:
            msg = f"the adapter {folder} names no base model"
            self.problems.append(Problem((name,), msg, _NAME_BOTH))
            return
        field = "lora_path" if isinstance(settings, LoraSettings) else "prefix_path"
        if field == "prefix_path" and self.config.task == "quantize":
            msg = f"{folder} is a prefix, which cannot be quantized with its model"
            self.problems.append(Problem((name,), msg, f"Quantize the model alone: {settings.base}."))
            return
        if field == "prefix_path" and self.topology.pipeline > 1:
            msg = f"{folder} is a prefix, and pipeline_parallel_degree is {self.topology.pipeline}"
            self.problems.append(Problem((name,), msg, "Set pipeline_parallel_degree to 1."))
        own = has_tokenizer(folder) and self.config.tokenizer_name_or_path == self.config.model_name_or_path
        update = {name: settings.base, field: str(folder)}
        update["tokenizer_name_or_path"] = str(folder) if own else settings.base
        self.config = self.config.model_copy(update=update)
        self.changes |= {name: settings.base}
        self.adapter = folder

    def _model(self, finder: Finder) -> None:
        if any(problem.loc == (MODEL,) for problem in self.problems):
            return  # it is an adapter that cannot be used here
        config = self.config
        given = config.model_name_or_path
        folder, inside = self.hub_folder(finder, "model_name_or_path", given, Part.MODEL)
        if self.adapter:
            self.named_by_adapter("model_name_or_path", self.adapter, _NAME_BOTH)
        if folder:
            problems, warnings, statistics = check_model(folder, inside, config, self.topology)
            self.problems += problems
            self.warnings += warnings
            self.statistics["model"] = statistics
        elif shape := shape_by_name(given):
            self.problems += misfits(shape, self.topology)
            self.warnings += copied_keys(shape, self.topology)
        tokenizer = config.tokenizer_name_or_path or given
        if tokenizer != given or finder.refers(TOKENIZER, tokenizer):
            folder, inside = self.hub_folder(finder, TOKENIZER, tokenizer, Part.TOKENIZER)
        elif folder:
            self.changes[TOKENIZER], self.read[TOKENIZER] = str(folder), folder
        if folder:
            self.inside_tokenizer = inside
            self.problems += check_tokenizer(folder, inside)

    def _chat_template(self, models: Finder, data: Finder) -> None:
        given = self.config.chat_template
        if given is None and not isinstance(self.config, SftConfig):
            return  # preference data is raw text unless a template is named
        tokenizer = self.read.get(TOKENIZER) or self.read.get(MODEL)
        if given == NONE or (given is None and tokenizer is None):
            return
        named = given == self.config.model_name_or_path
        if named and MODEL not in self.read:
            return  # it comes with the model, of which something else is said
        finder = replace(models, kind="model and data")
        for root in data.roots or ():
            finder = finder.or_inside(root)
        if given is not None:
            found = finder.path("chat_template", str(self.read[MODEL]) if named else given)
            if isinstance(found, Problem):
                self.problems.append(found)
                return
            self.changes["chat_template"] = given if finder.refers(MODEL, given) else str(found)
            given = str(found)
        elif self.inside_tokenizer is not None:
            finder = self.inside_tokenizer
        self.problems += check_chat_template(given, tokenizer or Path("."), finder)

    def _data(self, finder: Finder) -> None:
        if isinstance(self.config, SftConfig):
            self._folder_of_records(finder, self.config)
        else:
            self._files_of_preferences(finder, self.config)

    def _files_of_preferences(self, finder: Finder, config: DpoConfig | KtoConfig) -> None:
        found = check_preference_data(finder, config)
        self.problems += found.problems
        self.warnings += found.warnings
        self.statistics |= found.statistics
        self.changes |= found.changes
        if config.do_train and config.max_steps > 0:
            self.statistics["optimizer_steps"] = config.max_steps

    def _folder_of_records(self, finder: Finder, config: SftConfig) -> None:
        folder = self.folder(finder, "dataset_name_or_path", config.dataset_name_or_path)
        if not folder:
            return
        problems, splits = check_data(folder, finder, config)
        self.problems += problems
        self.statistics |= splits
        if "train" not in splits or not config.do_train or problems:
            return
        if not (config.zero_padding or config.lazy):
            problems, warnings, steps = check_steps(
                config, splits["train"]["examples"], self.topology.data_ways
            )
            self.problems += problems
            self.warnings += warnings
            self.statistics["optimizer_steps"] = steps
        elif config.max_steps > 0:
            self.statistics["optimizer_steps"] = config.max_steps


__all__ = ["Checked", "Roots", "check_job", "path_problems"]
