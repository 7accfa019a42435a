"""Reading the small bodies: a JSON object as a model, with everything that is wrong at its place."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.explain import explain, records
from api.problems import invalid
from api.schemas.jobs import ResourcesRequest
from trainer.config.problems import Problem

Request = TypeVar("Request", bound=BaseModel)


def read_request(model: type[Request], body: Mapping[str, Any]) -> Request:
    """The body as the model has it. Raises ApiError (422) with all that is wrong."""
    try:
        return model.model_validate(dict(body))
    except ValidationError as error:
        raise invalid(list(_explained(error, model))) from None


def _explained(error: ValidationError, model: type[BaseModel]) -> Iterator[Problem]:
    for record in records(error):
        within = ResourcesRequest if record["loc"][:1] == ("resources",) else model
        yield explain(record, ("body",), within.model_fields)
