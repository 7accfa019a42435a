"""What may be asked for: the argument files that ship, and the schema of each task's config."""

from typing import Any

from fastapi import APIRouter

from api.explain import nearest
from api.models import list_models, model_details
from api.pagination import Cursor, PageLimit, part_of
from api.problems import ApiError
from api.schemas.catalog import Preset, PresetPage, PresetSummary, ReasonPage, ReasonShown
from api.schemas.models import ModelDetails, ModelPage
from api.schemas.problems import ProblemItem, answers
from api.service import ServiceDep
from store.reasons import REASONS
from trainer.config import AVAILABLE_TASKS, json_schema, preset, preset_names, read_config, task_problem

router = APIRouter(tags=["catalog"])


@router.get("/presets")
def list_presets(limit: PageLimit = 200, cursor: Cursor = None) -> PresetPage:
    """The argument files that ship, by family and name."""
    names, next_cursor = part_of(preset_names(), "/".join, limit, cursor)
    return PresetPage(items=[PresetSummary(**_summary(*name)) for name in names], next_cursor=next_cursor)


@router.get("/presets/{family}/{name}", responses=answers(404))
def show_preset(family: str, name: str) -> Preset:
    """One argument file, ready to be changed and sent as `config`."""
    if (family, name) not in preset_names():
        known = ("/".join(names) for names in preset_names())
        raise ApiError(
            "not-found", f"There is no preset {family}/{name}. {nearest(f'{family}/{name}', known)}"
        )
    shipped = preset(family, name)
    problem = task_problem(shipped.task)
    reading = read_config(shipped.task, shipped.config)
    return Preset(
        **_summary(family, name),
        config=shipped.config,
        devices=reading.draft.world_size() if reading.draft else 1,
        problems=[ProblemItem.of(each) for each in ((problem,) if problem else reading.problems)],
    )


@router.get("/models")
def show_models(service: ServiceDep, limit: PageLimit = 200, cursor: Cursor = None) -> ModelPage:
    """What `model_name_or_path` may name: the known models and those below the model roots, by name."""
    models, incomplete = list_models(service.roots)
    rows, next_cursor = part_of(models, lambda model: model.name, limit, cursor)
    return ModelPage(items=list(rows), next_cursor=next_cursor, incomplete=incomplete)


@router.get("/models/{name:path}", responses=answers(404))
def show_model(service: ServiceDep, name: str) -> ModelDetails:
    """One model, with its sizes and what is known of its files."""
    return model_details(service.roots, name)


@router.get("/schemas/{task}", responses=answers(404))
def show_schema(task: str) -> dict[str, Any]:
    """The JSON Schema of the task's config."""
    if task not in AVAILABLE_TASKS:
        raise ApiError("not-found", f"There is no schema of task {task!r}. {nearest(task, AVAILABLE_TASKS)}")
    return json_schema(task)


def _summary(family: str, name: str) -> dict[str, Any]:
    task = preset(family, name).task
    links = {"self": f"/presets/{family}/{name}", "schema": f"/schemas/{task}"}
    if task not in AVAILABLE_TASKS:
        del links["schema"]
    return {
        "family": family,
        "name": name,
        "task": task,
        "available": task in AVAILABLE_TASKS,
        "links": links,
    }


@router.get("/reasons")
def list_reasons(limit: PageLimit = 200, cursor: Cursor = None) -> ReasonPage:
    """Why a job may have the status it has: whose fault that is, and what to do about it."""
    rows, next_cursor = part_of(list(REASONS), str, limit, cursor)
    return ReasonPage(items=[ReasonShown.of(row) for row in rows], next_cursor=next_cursor)
