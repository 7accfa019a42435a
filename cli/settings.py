"""The settings of this process, with failures that an operator can read."""

import os
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cli.errors import INVALID, CliError
from store.settings import UNSHOWN, Settings
from worker.devices import DeviceError, host_devices

PREFIX = "REGATTA_"


def read_settings(given: Mapping[str, Any] | None = None) -> Settings:
    """The environment's settings, with those of the command line in their place.

    Raises:
        CliError: with every setting that cannot be, and every variable that is a mistyped setting.
    """
    given = given or {}
    problems = _mistyped(os.environ)
    try:
        settings = Settings(**given)
    except ValidationError as error:
        problems += [_problem(entry, given) for entry in error.errors()]
    else:
        if not problems:
            return settings
    raise CliError("The settings have problems.", INVALID, problems)


def _mistyped(variables: Iterable[str]) -> list[dict[str, object]]:
    """Variables that are nearly the name of a setting, which would be left at its default."""
    known = [name.upper() for name in Settings.model_fields]
    problems: list[dict[str, object]] = []
    for variable in variables:
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known:
            continue
        if near := get_close_matches(name, known, n=1, cutoff=0.75):
            hint = f"Did you mean {PREFIX}{near[0]}?"
            problems.append({"loc": [variable], "msg": "is not a setting", "hint": hint})
    return problems


def check_devices(settings: Settings) -> None:
    """Raises CliError when this machine has not the devices that it is to offer."""
    try:
        host_devices(settings, os.environ)
    except DeviceError as error:
        raise CliError(str(error), INVALID) from error


def safe_address(settings: Settings, host: str | None = None) -> None:
    """Raises CliError when other machines could reach the API at this address without a key."""
    from api.server import UnsafeAddress, check_address

    try:
        check_address(settings, host or settings.api_host)
    except UnsafeAddress as error:
        raise CliError(str(error), INVALID) from error


def _problem(entry: ErrorDetails, given: Collection[str]) -> dict[str, object]:
    """A setting that came from the environment is named by its variable; a password is not shown."""
    name = str(entry["loc"][0])
    msg = entry["msg"].removeprefix("Value error, ")
    return {
        "loc": [name if name in given else f"{PREFIX}{name.upper()}", *entry["loc"][1:]],
        "msg": f"got {msg}" if name in UNSHOWN else f"got {entry['input']!r}: {msg}",
        "hint": Settings.model_fields[name].description or "",
    }
