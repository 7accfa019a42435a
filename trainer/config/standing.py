"""What this version does with an argument, and the one way to declare an argument.

The standing is kept in the field's JSON Schema extras under `x-regatta-support`, so that whoever reads the
schema sees it too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

SUPPORT_KEY = "x-regatta-support"
REQUIRED: Any = PydanticUndefined


@dataclass(frozen=True)
class Standing:
    """How this version treats an argument.

    Attributes:
        kind: `supported`: it does what it says. `no_effect`: accepted, changes nothing, a warning says why.
            `refused`: it would change the result and cannot be honoured.
        reason: why it has no effect or is refused.
        harmless: values besides the default that are what happens anyway, so nothing needs to be said.
        by_rule: a cross-field rule decides, because the value alone does not tell.
    """

    kind: Literal["supported", "no_effect", "refused"] = "supported"
    reason: str = ""
    harmless: tuple[Any, ...] = ()
    by_rule: bool = False

    def passes(self, value: object, default: object) -> bool:
        """Whether nothing has to be said about `value`."""
        return self.kind == "supported" or self.by_rule or value == default or value in self.harmless

    def as_schema(self) -> dict[str, Any]:
        """The form in the JSON Schema."""
        schema: dict[str, Any] = {"standing": self.kind}
        if self.reason:
            schema["reason"] = self.reason
        if self.harmless:
            schema["harmless"] = list(self.harmless)
        if self.by_rule:
            schema["by_rule"] = True
        return schema


SUPPORTED = Standing()


def no_effect(reason: str, harmless: Iterable[Any] = ()) -> Standing:
    """Accepted, changes nothing."""
    return Standing("no_effect", reason, tuple(harmless))


def refused(reason: str, harmless: Iterable[Any] = (), *, by_rule: bool = False) -> Standing:
    """Refused unless it is set to its default or to a harmless value."""
    return Standing("refused", reason, tuple(harmless), by_rule)


def later(what: str, harmless: Iterable[Any] = (), *, by_rule: bool = False) -> Standing:
    """Refused for now: `what` is not available in this version."""
    return refused(f"not available in this version: {what}", harmless, by_rule=by_rule)


def setting(
    default: Any,
    description: str,
    standing: Standing = SUPPORTED,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    secret: bool = False,
) -> Any:
    """Declare one argument: default (`REQUIRED` for none), one line of meaning, range and standing.

    A secret is never kept nor shown: reading drops its value.
    """
    extra: dict[str, Any] = {SUPPORT_KEY: standing.as_schema()}
    if secret:
        extra["writeOnly"] = True
    return Field(default, description=description, ge=ge, gt=gt, le=le, lt=lt, json_schema_extra=extra)


def extras(field: FieldInfo) -> dict[str, Any]:
    """The JSON Schema extras of a field declared with `setting`."""
    return cast(dict[str, Any], field.json_schema_extra or {})


def standing_of(field: FieldInfo) -> Standing:
    """The standing that `setting` was given."""
    schema = extras(field).get(SUPPORT_KEY, {"standing": "supported"})
    return Standing(
        schema["standing"],
        schema.get("reason", ""),
        tuple(schema.get("harmless", ())),
        schema.get("by_rule", False),
    )


def is_secret(field: FieldInfo) -> bool:
    """Whether the value must not be kept or shown."""
    return bool(extras(field).get("writeOnly"))
