"""Query parameters: unknown names are refused, so that a mistyped filter never means "no filter"."""

from collections.abc import Collection
from itertools import islice

from fastapi.dependencies.models import Dependant
from starlette.requests import Request

from api.explain import nearest
from api.problems import MOST_PROBLEMS, invalid
from trainer.config.problems import Problem

DEEP_QUERY = "x-regatta-deep-query"
"""In a route's `openapi_extra`: the parameters that are objects, with their members sent one by one."""


async def refuse_unknown_names(request: Request) -> None:
    """Raises ApiError (422) when the query has a name that the called route does not take."""
    route = request.scope["route"]
    if not request.query_params:
        return
    known = _names(route.dependant)
    deep = (route.openapi_extra or {}).get(DEEP_QUERY, ())
    problems = [
        Problem(
            ("query", name), "unknown parameter", nearest(name, known) if known else "There is none here."
        )
        for name in islice(
            (name for name in request.query_params if name not in known and not _is_deep(name, deep)),
            MOST_PROBLEMS + 1,
        )
    ]
    if problems:
        raise invalid(problems)


def _is_deep(name: str, deep: Collection[str]) -> bool:
    """Whether a name is that of a member, as in `metadata[key]`."""
    return name.endswith("]") and name.partition("[")[0] in deep


def _names(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_names(inner) for inner in dependant.dependencies))
