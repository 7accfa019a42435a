"""Liveness and readiness."""

from typing import Literal

from pydantic import BaseModel, Field


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Check(BaseModel):
    ok: bool
    detail: str = Field(default="", description="What is wrong; empty when nothing is")


class Readiness(BaseModel):
    status: Literal["ready"] = "ready"
    checks: dict[str, Check] = Field(description="database, migrations, broker, artifacts")
