"""Bodies that are one small object: read strictly, with all that is wrong said at once."""

from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from api.body import read_json_object
from api.explain import explain, records
from api.problems import invalid
from api.service import ServiceDep

Form = TypeVar("Form", bound=BaseModel)


async def json_object(request: Request, service: ServiceDep) -> dict[str, Any]:
    """The body as a JSON object, for use as a dependency. Raises ApiError as `read_json_object` does."""
    return await read_json_object(request, service.settings.max_body_bytes, service.settings.body_timeout_s)


def read_form(model: type[Form], body: Mapping[str, Any]) -> Form:
    """The body as the model. Raises ApiError (422) with everything that is wrong."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise invalid(
            [explain(record, ("body",), model.model_fields) for record in records(error)]
        ) from error
