"""Query parameters: unknown names are refused, so that a mistyped filter never means "no filter"."""

from itertools import islice

from fastapi.dependencies.models import Dependant
from starlette.requests import Request

from api.explain import nearest
from api.problems import MOST_PROBLEMS, invalid
from trainer.config.problems import Problem


def refuse_unknown_names(request: Request) -> None:
    """Raises ApiError (422) when the query has a name that the called route does not take."""
    known = _names(request.scope["route"].dependant)
    problems = [
        Problem(
            ("query", name), "unknown parameter", nearest(name, known) if known else "There is none here."
        )
        for name in islice((name for name in request.query_params if name not in known), MOST_PROBLEMS + 1)
    ]
    if problems:
        raise invalid(problems)


def _names(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_names(inner) for inner in dependant.dependencies))
