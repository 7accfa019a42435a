"""The bodies that change a job: retry, clone, and PATCH."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.jobs import MOST_LABELS, JobName, LabelKey, LabelValue, ResourcesRequest
from api.schemas.webhooks import WebhookRequest

CHANGES = "Arguments with their new values; null: back to the default"
Timeout = Annotated[float, Field(gt=0, le=10 * 365 * 86400)]


class RetryRequest(BaseModel):
    """What is to be different this time; the job is checked as a whole with it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    config: dict[str, Any] = Field(default_factory=dict, description=CHANGES)
    resources: ResourcesRequest | None = None
    max_retries: int | None = Field(None, ge=0, le=100)
    timeout_s: Timeout | None = Field(None, description="null: as it is")
    from_scratch: bool = Field(False, description="Forget its checkpoints and numbers, and begin at step 0")
    force: bool = Field(False, description="As in POST /jobs")


class CloneRequest(BaseModel):
    """What is to be different in the new job; what is left out is that of the old one."""

    model_config = ConfigDict(extra="forbid", strict=True)

    config: dict[str, Any] = Field(default_factory=dict, description=CHANGES)
    name: JobName | None = None
    resources: ResourcesRequest | None = None
    priority: int | None = Field(None, ge=-1000, le=1000)
    max_retries: int | None = Field(None, ge=0, le=100)
    timeout_s: Timeout | None = None
    labels: dict[LabelKey, LabelValue] | None = Field(None, max_length=MOST_LABELS)
    secrets: dict[str, str] | None = Field(None, repr=False, description="As in POST /jobs; never copied")
    webhook: WebhookRequest | None = Field(None, description="As in POST /jobs; never copied")
    force: bool = Field(False, description="As in POST /jobs")


class ChangeRequest(BaseModel):
    """What may be changed of a job that exists; what is left out stays."""

    model_config = ConfigDict(extra="forbid", strict=True)

    priority: int | None = Field(None, ge=-1000, le=1000, description="While it is queued")
    name: JobName | None = Field(None, description="null: none")
    labels: dict[LabelKey, LabelValue | None] = Field(
        default_factory=dict, max_length=MOST_LABELS, description="Set, or removed where null"
    )
