"""Secrets of requests: checked without ever being repeated in an answer, encrypted, kept out of configs."""

from collections.abc import Iterator, Mapping
from typing import Any

from api.problems import ApiError, sentence
from api.service import Service
from store.errors import StoreError
from store.secretbox import SecretBox, Unreadable, open_box
from store.secrets import MOST_SECRETS, name_problem, value_problem
from trainer.config.problems import Problem
from trainer.config.values import show

LOC = ("body", "secrets")


def secrets_problems(secrets: object) -> list[Problem]:
    """What is wrong with the `secrets` of a job."""
    if secrets is None:
        return []
    if not isinstance(secrets, dict):
        return [Problem(LOC, "expected an object", 'Send {"HF_TOKEN": "..."}.')]
    if len(secrets) > MOST_SECRETS:
        return [
            Problem(LOC, f"got {len(secrets)} secrets, expected {MOST_SECRETS} at most", "Leave some out.")
        ]
    problems = []
    for name, value in secrets.items():
        if problem := name_problem(name):
            problems.append(Problem(LOC, f"got the name {show(name)}, {problem}", "Rename it."))
        elif problem := value_problem(value):
            problems.append(Problem((*LOC, name), problem, "Values are one line of 8 characters or more."))
    return problems


def box_of(service: Service) -> SecretBox:
    """What encrypts here. Raises ApiError (409) when the server has no key for it."""
    try:
        return open_box(service.settings)
    except StoreError as error:
        raise ApiError("no-secret-key", sentence(error)) from error


def encrypted(service: Service, secrets: Mapping[str, str]) -> dict[str, str]:
    """The secrets in the form in which they are stored. Raises ApiError (409)."""
    if not secrets:
        return {}
    box = box_of(service)
    return {name: box.encrypt(value) for name, value in secrets.items()}


def leaks(service: Service, stored: Mapping[str, str], body: Mapping[str, Any]) -> list[Problem]:
    """The places of a job's body, beside its `secrets`, that hold the value of one: they would be shown.

    Args:
        stored: the secrets of its project, encrypted, by name.
    """
    values = _known_values(service, stored) | dict(body.get("secrets") or {})
    if not values:
        return []
    problems = []
    for loc, text in _texts(("body",), {name: part for name, part in body.items() if name != "secrets"}):
        for name, value in values.items():
            if value in text:
                msg = f"holds the value of the secret {name}, which everybody who sees the job could read"
                problems.append(Problem(loc, msg, "Leave it out: the trainer has it in its environment."))
    return problems


def _known_values(service: Service, stored: Mapping[str, str]) -> dict[str, str]:
    """The secrets that this server can read."""
    if not stored:
        return {}
    box = box_of(service)
    try:
        return {name: box.decrypt(ciphertext) for name, ciphertext in stored.items()}
    except Unreadable as error:
        raise ApiError("no-secret-key", sentence(error)) from error


def _texts(loc: tuple[str | int, ...], value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _texts((*loc, name), part)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _texts((*loc, index), part)
