"""Query parameters: unknown names are refused, so that a mistyped filter never means "no filter"."""

from starlette.requests import Request

from api.explain import nearest
from api.problems import invalid
from trainer.config.problems import Problem


def refuse_unknown_names(request: Request) -> None:
    """Raises ApiError (422) when the query has a name that the called route does not document."""
    known = _documented(request)
    problems = [
        Problem(
            ("query", name), "unknown parameter", nearest(name, known) if known else "This call takes none."
        )
        for name in request.query_params
        if name not in known
    ]
    if problems:
        raise invalid(problems)


def _documented(request: Request) -> set[str]:
    path = request.app.openapi()["paths"][request.scope["route"].path_format]
    parameters = path[request.method.lower()].get("parameters", [])
    return {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
