"""The bodies and documents of OpenAI's fine-tuning API, as far as the service has them."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from api.schemas.jobs import ResourcesRequest
from api.schemas.webhooks import WebhookRequest

Item = TypeVar("Item")


def _chosen(value: Any) -> Any:
    """None where the service is to choose."""
    return None if value == "auto" else value


Auto = BeforeValidator(_chosen)
Suffix = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^:\x00-\x1f\x7f]*$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class HyperparametersRequest(Strict):
    n_epochs: Annotated[Annotated[int, Field(ge=1, le=1000)] | None, Auto] = None
    batch_size: Annotated[Annotated[int, Field(ge=1, le=65536)] | None, Auto] = None
    learning_rate_multiplier: Annotated[Annotated[float, Field(gt=0, le=1e6)] | None, Auto] = None


class DpoHyperparametersRequest(HyperparametersRequest):
    beta: Annotated[Annotated[float, Field(gt=0, le=1000)] | None, Auto] = None


class SupervisedRequest(Strict):
    hyperparameters: HyperparametersRequest | None = None


class DpoRequest(Strict):
    hyperparameters: DpoHyperparametersRequest | None = None


class MethodRequest(Strict):
    type: Literal["supervised", "dpo"]
    supervised: SupervisedRequest | None = None
    dpo: DpoRequest | None = None


class Extras(Strict):
    """What only this service has; OpenAI's client sends it in `extra_body={"regatta": {...}}`."""

    config: dict[str, Any] = Field(default_factory=dict, description="Arguments that replace those chosen")
    resources: ResourcesRequest | None = None
    priority: int = Field(0, ge=-1000, le=1000)
    max_retries: int = Field(0, ge=0, le=100)
    timeout_s: float | None = Field(None, gt=0, le=10 * 365 * 86400)
    webhook: WebhookRequest | None = None
    force: bool = False


class FineTuningRequest(Strict):
    """The body of POST /v1/fine_tuning/jobs."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    training_file: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    validation_file: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    method: MethodRequest | None = None
    hyperparameters: HyperparametersRequest | None = None
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    suffix: Suffix | None = None
    metadata: dict[str, str] | None = None
    integrations: Annotated[list[Any], Field(max_length=0)] | None = None
    regatta: Extras | None = None


class FileObject(BaseModel):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: Literal["fine-tune"] = "fine-tune"
    status: Literal["processed"] = "processed"
    status_details: str | None = None


class DeletedFile(BaseModel):
    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class JobError(BaseModel):
    code: str
    message: str
    param: str | None


class Hyperparameters(BaseModel):
    n_epochs: int | float
    batch_size: int
    learning_rate_multiplier: float


class DpoHyperparameters(Hyperparameters):
    beta: float


class Supervised(BaseModel):
    hyperparameters: Hyperparameters


class Dpo(BaseModel):
    hyperparameters: DpoHyperparameters


class SupervisedMethod(BaseModel):
    type: Literal["supervised"] = "supervised"
    supervised: Supervised


class DpoMethod(BaseModel):
    type: Literal["dpo"] = "dpo"
    dpo: Dpo


class FineTuningJob(BaseModel):
    id: str
    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    created_at: int
    finished_at: int | None
    estimated_finish: int | None
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    error: JobError | None
    model: str
    fine_tuned_model: str | None
    organization_id: str
    hyperparameters: Hyperparameters
    method: SupervisedMethod | DpoMethod
    training_file: str
    validation_file: str | None
    result_files: list[str]
    trained_tokens: int | None
    seed: int
    integrations: list[Any]
    metadata: dict[str, str]


class JobEvent(BaseModel):
    id: str
    object: Literal["fine_tuning.job.event"] = "fine_tuning.job.event"
    created_at: int
    level: Literal["info", "warn", "error"]
    message: str
    type: Literal["message", "metrics"]
    data: dict[str, Any]


class CheckpointMetrics(BaseModel):
    step: int
    train_loss: float | None = None
    full_valid_loss: float | None = None
    full_valid_mean_token_accuracy: float | None = None


class JobCheckpoint(BaseModel):
    id: str
    object: Literal["fine_tuning.job.checkpoint"] = "fine_tuning.job.checkpoint"
    created_at: int
    fine_tuned_model_checkpoint: str
    fine_tuning_job_id: str
    step_number: int
    metrics: CheckpointMetrics


class ModelObject(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ListOf(BaseModel, Generic[Item]):
    """A part of a list; the id of the last item is `after` of the next part."""

    object: Literal["list"] = "list"
    data: list[Item]
    has_more: bool


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelObject]
