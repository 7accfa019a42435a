"""Refusals below `/v1` in the shape that OpenAI's clients read: `{"error": {message, type, param, code}}`."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import MEDIA_TYPE, TYPE_PREFIX

PREFIX = "/v1/"
ERROR = "OpenAIError"
"""Name of the shape in the description of the API."""
MOST_SHOWN = 10
"""Problems that a message tells of."""
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
CODES = {
    "unauthenticated": "invalid_api_key",
    "quota-exceeded": "insufficient_quota",
    "too-many-requests": "rate_limit_exceeded",
    "invalid": "invalid_value",
}
PARAMETERS = {
    "model_name_or_path": "model",
    "tokenizer_name_or_path": "model",
    "dataset_name_or_path": "training_file",
    "train_dataset_path": "training_file",
    "dev_dataset_path": "validation_file",
    "num_train_epochs": "hyperparameters.n_epochs",
    "per_device_train_batch_size": "hyperparameters.batch_size",
    "gradient_accumulation_steps": "hyperparameters.batch_size",
    "learning_rate": "hyperparameters.learning_rate_multiplier",
    "beta": "method.dpo.hyperparameters.beta",
    "seed": "seed",
}
"""What arguments of a config are called in OpenAI's API."""
MEMBERS = {
    "labels": "metadata",
    "name": "suffix",
    "resources": "regatta.resources",
    "webhook": "regatta.webhook",
}
"""What members of the body of POST /jobs are called there."""


class ErrorObject(BaseModel):
    message: str = Field(description="What is wrong, and what to do about it")
    type: str
    param: str | None = Field(description="The parameter that is wrong, the first of several")
    code: str | None = Field(description="The kind of problem")


class OpenAIError(BaseModel):
    """A refusal of OpenAI's API."""

    error: ErrorObject


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of refusals with these statuses, for a route's `responses`."""
    schema = {"$ref": f"#/components/schemas/{ERROR}"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": schema}},
        }
        for status in statuses
    }


class OpenAIErrors:
    """ASGI middleware around what answers with problem details."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self.app(scope, receive, send)
            return
        held: Message | None = None

        async def reshaping(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_problem(message):
                held = message
                return
            if held is not None and message["type"] == "http.response.body":
                # a problem is sent whole, in the first message of its body
                start, message = _reshaped(held, message)
                held = None
                await send(start)
            await send(message)

        await self.app(scope, receive, reshaping)


def _is_problem(start: Message) -> bool:
    return MutableHeaders(raw=list(start["headers"])).get("content-type", "").startswith(MEDIA_TYPE)


def _reshaped(start: Message, body: Message) -> tuple[Message, Message]:
    if not body.get("body"):
        return start, body  # the answer to HEAD
    status, error = as_error(json.loads(body["body"]))
    content = json.dumps({"error": error}).encode()
    headers = MutableHeaders(raw=list(start["headers"]))
    headers["content-type"] = "application/json"
    headers["content-length"] = str(len(content))
    return {**start, "status": status, "headers": headers.raw}, {**body, "body": content}


def as_error(problem: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The status and the error that problem details are there."""
    kind = problem["type"].removeprefix(TYPE_PREFIX)
    status = 400 if problem["status"] == 422 else problem["status"]
    errors = problem.get("errors") or []
    lines = [_sentence(each) for each in errors[:MOST_SHOWN]]
    if len(errors) > MOST_SHOWN:
        lines.append(f"There are {len(errors) - MOST_SHOWN} more problems.")
    default = "server_error" if status >= 500 else "invalid_request_error"
    return status, {
        "message": "\n".join(lines) or problem["detail"],
        "type": TYPES.get(status, default),
        "param": _parameter(errors[0]["loc"]) if errors else None,
        "code": problem.get("code") or CODES.get(kind, kind.replace("-", "_")),
    }


def _sentence(error: Mapping[str, Any]) -> str:
    place = _parameter(error["loc"])
    sentence = f"{place}: {error['msg']}" if place else error["msg"]
    return f"{sentence.rstrip('.')}. {error['hint']}".rstrip() if error["hint"] else f"{sentence}"


def _parameter(loc: list[str | int]) -> str | None:
    """The name of a place in OpenAI's API."""
    parts = [str(part) for part in loc[1:]]
    if parts[:1] == ["config"] and len(parts) > 1:
        return PARAMETERS.get(parts[1], f"regatta.config.{parts[1]}")
    parts[:1] = [MEMBERS.get(part, part) for part in parts[:1]]
    return ".".join(parts) or None
