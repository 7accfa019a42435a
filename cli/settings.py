"""The settings of this process, with failures that an operator can read."""

import os
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cli.errors import INVALID, CliError
from store.settings import SCHEMES, Settings
from worker.devices import DeviceError, host_devices


def read_settings(given: Mapping[str, Any] | None = None) -> Settings:
    """The environment's settings, with those of the command line in their place.

    Raises:
        CliError: with every setting that cannot be.
    """
    given = given or {}
    try:
        return Settings(**given)
    except ValidationError as error:
        problems = [_problem(entry, given) for entry in error.errors()]
        raise CliError("The settings have problems.", INVALID, problems) from error


def check_devices(settings: Settings) -> None:
    """Raises CliError when this machine has not the devices that it is to offer."""
    try:
        host_devices(settings, os.environ)
    except DeviceError as error:
        raise CliError(str(error), INVALID) from error


def _problem(entry: ErrorDetails, given: Collection[str]) -> dict[str, object]:
    """A setting that came from the environment is named by its variable. URLs may hold passwords."""
    name = str(entry["loc"][0])
    msg = entry["msg"].removeprefix("Value error, ")
    return {
        "loc": [name if name in given else f"REGATTA_{name.upper()}", *entry["loc"][1:]],
        "msg": f"got {msg}" if name in SCHEMES else f"got {entry['input']!r}: {msg}",
        "hint": Settings.model_fields[name].description or "",
    }
