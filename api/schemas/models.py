"""Models that may be named in a config."""

from enum import StrEnum

from pydantic import BaseModel, Field

from api.pagination import Page
from api.schemas.common import Links


class Availability(StrEnum):
    """Where a model is."""

    local = "local"
    cached = "cached"
    fetchable = "fetchable"
    absent = "absent"


class Model(BaseModel):
    """A model. Its name is what `model_name_or_path` takes."""

    name: str
    model_type: str | None = Field(description="Its family; null for an adapter")
    parameters: int | None = Field(description="Of the models of the built-in table")
    known: bool = Field(description="Whether it is in the built-in table of published models")
    available: Availability = Field(
        description="local: below a model root; cached: in the cache of the Hugging Face hub; fetchable: "
        "this service may fetch it from there; absent: it may not"
    )
    adapter: bool = Field(description="A LoRA adapter or a prefix: for lora_path or prefix_path")
    quantized: bool
    links: Links


class ModelPage(Page[Model]):
    """The known models and those below the model roots, by name."""

    incomplete: bool = Field(description="There are more folders below the model roots than were looked at")


class ModelDetails(Model):
    """A model with its sizes and, where it is on this machine, its files."""

    sizes: dict[str, int] = Field(
        description="hidden_size, layers, heads, vocabulary, longest: as its config.json says; what is left "
        "out is the default of its family"
    )
    bytes: int | None = Field(None, description="Of its weights")
    tensors: int | None = None
    has_tokenizer: bool | None = None
    problem: str | None = Field(None, description="What is wrong with its files")
