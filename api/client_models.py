"""Writes `regatta_client/models.py`: the documents of the API as the client's types.

`python -m api.client_models` writes it anew; a test compares.
"""

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from api.app import create_app
from store.settings import Settings

TARGET = Path(__file__).parents[1] / "regatta_client" / "models.py"
SHOWN = (
    "Job",
    "Validation",
    "Event",
    "Metric",
    "LogLine",
    "Checkpoint",
    "Dataset",
    "Pipeline",
    "Host",
    "ProblemItem",
)
"""What the client gives; what these consist of comes with them."""
HEAD = '''"""The documents of the API. Written by `python -m api.client_models`: do not change it by hand.

Words that are known are listed; others, which a later server may say, are taken as they are.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel
'''
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
EMPTY: dict[str | None, Any] = {"array": [], "object": {}}
WIDTH = 100


def source(document: Mapping[str, Any]) -> str:
    """The module for an OpenAPI document."""
    schemas = document["components"]["schemas"]
    written: dict[str, str] = {}
    for name in SHOWN:
        _add(name, schemas, written)
    text = "\n\n\n".join([HEAD.rstrip(), *written.values()]) + "\n"
    for options in (["format"], ["check", "--select", "I", "--fix", "-q"]):
        command = [sys.executable, "-m", "ruff", *options, "--stdin-filename", str(TARGET), "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60)
        text = done.stdout
    return text


def _add(name: str, schemas: Mapping[str, Any], written: dict[str, str]) -> None:
    """A type behind those that it consists of."""
    if name in written:
        return
    schema = schemas[name]
    for needed in _references(schema):
        _add(needed, schemas, written)
    written[name] = _class(name, schema) if "properties" in schema else f"{name} = {_type(schema)}"


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _class(name: str, schema: Mapping[str, Any]) -> str:
    lines = [f"class {name}(BaseModel):"]
    if description := schema.get("description"):
        lines.append(_docstring(description))
    lines.append("")
    for field, about in schema["properties"].items():
        default = "" if field in schema.get("required", ()) else " = None"
        annotation = _type(about)
        if default and "None" not in annotation.split(" | "):
            default = f" = {about.get('default', EMPTY.get(about.get('type')))!r}"
        lines.append(f"    {field}: {annotation}{default}")
        if description := about.get("description"):
            lines.append(_docstring(description))
    return "\n".join(lines)


def _docstring(text: str) -> str:
    wrapped = textwrap.wrap(" ".join(text.split()), WIDTH)
    return textwrap.indent('"""' + "\n".join(wrapped) + ('"""' if len(wrapped) == 1 else '\n"""'), "    ")


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}] | str"
    kind = schema.get("type")
    if kind == "array":
        return f"list[{_type(schema['items'])}]"
    if kind == "object":
        values = schema.get("additionalProperties", True)
        return f"dict[str, {_type(values) if isinstance(values, Mapping) else 'Any'}]"
    if schema.get("format") == "date-time":
        return "datetime"
    return PLAIN.get(str(kind), "Any")


def current() -> str:
    """The module as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), database_url=f"sqlite:///{folder}/none.db")
        return source(create_app(settings).openapi())


if __name__ == "__main__":
    TARGET.write_text(current(), encoding="utf-8")
