"""The service's description of itself: FastAPI's document with our bodies and problem details put in."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.authentication import is_open
from api.openai_face.errors import PREFIX, OpenAIError, refusals
from api.openai_face.schemas import FineTuningRequest
from api.principal import READING, SCOPE_MARK
from api.schemas.jobs import JobRequest
from api.schemas.keys import KeyRequest
from api.schemas.pipelines import PipelineRequest
from api.schemas.problems import Problem, answers
from api.schemas.projects import LimitsRequest, ProjectRequest
from api.schemas.reruns import ChangeRequest, CloneRequest, RetryRequest
from api.schemas.secrets import SecretRequest

REF = "#/components/schemas/{model}"
ALWAYS = (401, 403, 421, 422, 429, 500, 503)
"""Statuses that every call may answer: no key, the guard's, bad parameters, a failure, the database away."""
WITH_BODY = (400, 408, 413, 415)
"""Statuses that every call with a body may answer: unreadable, late, too large, of another media type."""
INVALID_OF_OPENAI = 400
"""What there is in place of 422."""
KEY_SCHEME = "key"
BODIES: tuple[type[BaseModel], ...] = (
    JobRequest,
    PipelineRequest,
    RetryRequest,
    CloneRequest,
    ChangeRequest,
    KeyRequest,
    SecretRequest,
    ProjectRequest,
    LimitsRequest,
    FineTuningRequest,
)
"""What calls read by themselves."""


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, built once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        schemas |= _schemas(Problem, OpenAIError, *BODIES)
        document["components"]["securitySchemes"] = {KEY_SCHEME: {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _document_problems(operation, path)
                _document_key(operation, method.upper(), path)
        app.openapi_schema = document
    return app.openapi_schema


def _document_problems(operation: dict[str, Any], path: str) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    statuses = {*ALWAYS, *(WITH_BODY if "requestBody" in operation else ())}
    if path.startswith(PREFIX):
        always = refusals(*sorted(statuses - {422} | {INVALID_OF_OPENAI}))
    else:
        always = answers(*sorted(statuses))
    for status, answer in always.items():
        responses.setdefault(str(status), answer)


def _document_key(operation: dict[str, Any], method: str, path: str) -> None:
    """Whether a server that wants keys wants one here, and of which scope."""
    if is_open(method, path):
        operation["security"] = []
        return
    operation["security"] = [{KEY_SCHEME: []}]
    operation.setdefault(SCOPE_MARK, "read" if method in READING else "write")


def _schemas(*models: type[BaseModel]) -> dict[str, Any]:
    _, document = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    return document["$defs"]


def json_body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """A route's `openapi_extra` for a body that the endpoint reads by itself."""
    schema = {"$ref": REF.format(model=model.__name__)}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}
