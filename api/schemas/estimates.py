"""What a job will take."""

from pydantic import BaseModel, Field

from trainer.config.estimate import Estimate as Found


class MemoryParts(BaseModel):
    """Bytes of one device, by what they are for; together they are the memory."""

    weights: int = Field(description="The model and its adapter")
    gradients: int
    optimizer_state: int = Field(description="AdamW's two moments")
    master_weights: int = Field(description="float32 copies of 16-bit weights")
    activations: int = Field(description="What the backward pass needs of the forward pass")
    loss: int = Field(description="Logits, and the gradient of the vocabulary projection while it is made")
    reference_model: int = Field(description="The frozen model of dpo and kto")
    buffers: int = Field(description="Copies for clipping, communication and checkpoints; statistics")
    allocator: int = Field(description="What the allocator takes from the system and cannot use")
    runtime: int = Field(description="Python, Paddle and its libraries")


class Memory(BaseModel):
    """The memory of the fullest device."""

    bytes: int
    moment: str = Field(description="When it holds most")
    stage: int | None = Field(description="Of the pipeline, from 0; null without one")
    parts: MemoryParts


class SplitTokens(BaseModel):
    """The tokens of one split, an epoch long."""

    records: int
    sampled: int | None = Field(description="How many records were tokenized; null: all")
    examples: int = Field(description="Records that can be learned from")
    tokens: int = Field(description="Of all examples, without padding")
    label_tokens: int = Field(description="Of them learned")
    longest: int = Field(description="Tokens of the longest example")
    rows: int = Field(description="What batches are made of: an example each, or packs of them")
    batch_tokens: int = Field(description="Most tokens of a micro-batch, without padding")
    batch_labels: int = Field(description="Of them learned")
    padding_share: float = Field(description="Of a batch, as the config says")
    packed_padding_share: float | None = Field(description="The same if examples were packed (zero_padding)")


class Checkpoints(BaseModel):
    """What is written; the small files beside weights and optimizer state are not counted."""

    bytes: int = Field(description="Of one checkpoint")
    weights_bytes: int = Field(description="Of them weights; the final model has as many")
    optimizer_bytes: int = Field(description="Of them optimizer state")
    saves: int | None = Field(description="How many checkpoints are written")
    kept: int | None = Field(description="How many are left at the end")
    total_bytes: int | None = Field(description="Most that lies there at a time")


class Estimate(BaseModel):
    """What a job will take; null: not known yet, and `notes` says why."""

    parameters: int | None = Field(description="Of the model and its adapter")
    trainable_parameters: int | None
    adapter_parameters: int | None
    memory: Memory | None
    data: dict[str, SplitTokens] | None = Field(description="By split")
    optimizer_steps: int | None = Field(description="Of the whole run")
    tokens_per_step: int | None = Field(description="On average, without padding")
    run_tokens: int | None = Field(description="Of the whole run, without padding")
    checkpoints: Checkpoints | None
    notes: list[str] = Field(description="What was assumed, and why something is not known")

    @classmethod
    def of(cls, found: Found) -> "Estimate":
        return cls.model_validate(found.as_dict())
