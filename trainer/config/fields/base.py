"""The base of every group of arguments."""

from pydantic import BaseModel, ConfigDict


class FieldGroup(BaseModel):
    """Arguments of one subject. Only the config classes composed of groups are instantiated."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, protected_namespaces=())
