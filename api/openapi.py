"""The service's description of itself: FastAPI's document with our bodies and problem details put in."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.schemas.jobs import JobRequest
from api.schemas.problems import Problem, answers

REF = "#/components/schemas/{model}"
ALWAYS = (403, 421, 422, 500, 503)
"""Statuses that every call may answer: the guard's, bad parameters, a failure, the database away."""


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, built once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        schemas |= _schemas(Problem, JobRequest)
        for path in document["paths"].values():
            for operation in path.values():
                _document_problems(operation["responses"])
        app.openapi_schema = document
    return app.openapi_schema


def _document_problems(responses: dict[str, Any]) -> None:
    responses.pop("422", None)
    for status, answer in answers(*ALWAYS).items():
        responses.setdefault(str(status), answer)


def _schemas(*models: type[BaseModel]) -> dict[str, Any]:
    _, document = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    return document["$defs"]


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """A route's `openapi_extra` for a body that the endpoint reads by itself."""
    schema = {"$ref": REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
