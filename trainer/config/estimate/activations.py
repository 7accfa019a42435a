"""What a forward pass leaves behind for its backward pass, and what the loss works with. In bytes.

Counted is what the modules of `trainer.models` and `trainer.ops` keep, tensor by tensor. Padding is not among
it: a batch is packed before it goes through the model.
"""

from dataclasses import dataclass

from trainer.config.estimate.architecture import Architecture, Cut
from trainer.config.estimate.constants import LOGIT_ROWS, QUERY_BLOCK, WIDEST_FLASH_HEAD
from trainer.config.estimate.parameters import lora_linears
from trainer.config.schema import RecordsConfig
from trainer.config.topology import Topology

FLOAT32 = 4


@dataclass(frozen=True)
class Precision:
    """Bytes of a number: of a weight, of what is computed, and of the residual stream between layers."""

    device: str
    weight: int
    compute: int
    residual: int

    @classmethod
    def of(cls, config: RecordsConfig, device: str) -> "Precision":
        """As `trainer.loop.precision.choose_precision` decides: on a CPU everything is float32."""
        low = device == "gpu" and (config.fp16 or config.bf16) and config.fp16_opt_level != "O0"
        if not low:
            return cls(device, FLOAT32, FLOAT32, FLOAT32)
        half = 2
        if config.fp16_opt_level == "O2":
            return cls(device, half, half, half)
        return cls(device, FLOAT32, half, FLOAT32)

    @property
    def master(self) -> bool:
        """Whether the optimizer keeps float32 copies of the weights."""
        return self.weight < FLOAT32

    @property
    def mixed(self) -> bool:
        """Whether computing is done in fewer bytes than float32."""
        return self.compute < FLOAT32


@dataclass(frozen=True)
class Pass:
    """One micro-batch: `rows` documents of `length` tokens, of which `labels` in all are learned."""

    rows: int
    length: int
    labels: int

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return self.rows * self.length


class Activations:
    """Bytes that a pass leaves behind in one process."""

    def __init__(
        self, model: Architecture, config: RecordsConfig, topology: Topology, precision: Precision
    ) -> None:
        self._model = model
        self._config = config
        self._tensor = topology.tensor
        self._parts = topology.tensor if topology.sequence_parallel else 1
        self._precision = precision

    def of_layer(self, work: Pass) -> int:
        """Of one decoder layer, all of it."""
        return self._stream(work) + self._projected(work) + self._core(work) + self._mlp(work)

    def kept(self, work: Pass) -> int:
        """Of one decoder layer, what recompute leaves in place until the backward pass."""
        config = self._config
        if not config.recompute:
            return self.of_layer(work)
        if config.recompute_granularity == "full":
            return work.tokens * self._model.hidden * self._precision.residual // self._parts
        attention = self._core(work)
        if config.recompute_granularity == "full_attn":
            attention += self._projected(work)
            return self.of_layer(work) - attention
        # The inputs of what is computed again, and its output.
        inputs = self._keys * 2 + self._model.query_width // self._tensor * 2
        return self.of_layer(work) - attention + work.tokens * inputs * self._precision.compute

    def of_ends(self, work: Pass) -> int:
        """Of the embedding, the final norm and the hidden states that the head sees, with their gradient."""
        tensors = 3 + (1 if self._model.embedding_vectors else 0)
        return tensors * work.tokens * self._model.hidden * self._precision.residual

    def forward_only(self, work: Pass) -> int:
        """The most that is there at a time in a pass without gradients."""
        return self.of_ends(work) + self.of_layer(work)

    def loss(self, work: Pass, *, trained: bool) -> int:
        """The most that the head works with: chunks of logits, and the gradient of its weight.

        A chunk is still there while the next one is made, and what it adds to the gradient of the weight is
        a tensor of its own.

        Args:
            trained: whether the head's weight is.
        """
        chunks = -(-work.labels // LOGIT_ROWS)
        vocabulary = -(-self._model.vocabulary // self._tensor)
        low = self._precision.compute if self._precision.mixed else 0
        logits = min(LOGIT_ROWS, work.labels) * vocabulary * (FLOAT32 + low)
        if not trained:
            return logits * min(chunks, 2)
        gradient = self._model.embedding(self._tensor) * FLOAT32
        if chunks == 1:
            return logits + gradient
        if chunks == 2:
            return logits + gradient + max(logits, gradient)
        return 2 * (logits + gradient)

    def _stream(self, work: Pass) -> int:
        """What the two norms saw and gave."""
        model, precision = self._model, self._precision
        seen = 2 * model.hidden * precision.residual // self._parts
        columns = [linear for linear in model.linears if linear.cut is Cut.COLUMNS]
        if self._parts > 1 or (precision.mixed and precision.residual == FLOAT32):
            # Each matrix has gathered, or cast, its input for itself.
            given = sum(not linear.shares_input for linear in columns) * model.hidden * precision.compute
        else:
            given = 2 * model.hidden * precision.compute
        return work.tokens * (seen + given + self._adapters())

    def _adapters(self) -> int:
        """What the low-rank matrices of a layer keep for one token."""
        config, precision = self._config, self._precision
        total = 0.0
        for linear in lora_linears(self._model, config, 0):
            inputs, _ = linear.local(self._model.ranks(linear, self._tensor))
            total += 2 * config.lora_rank * precision.compute
            if precision.mixed:
                total += inputs * precision.compute
            if config.lora_dropout:
                total += inputs * (FLOAT32 + 1)
        return int(total)

    def _projected(self, work: Pass) -> int:
        """The keys and values that attention keeps."""
        return work.tokens * 2 * self._keys * self._precision.compute

    def _core(self, work: Pass) -> int:
        """Queries, attention weights and outputs."""
        model, precision = self._model, self._precision
        queries = model.query_width // self._tensor
        if self.flash:
            return work.tokens * (2 * queries * precision.compute + model.heads // self._tensor * FLOAT32)
        numbers = work.tokens * 2 * queries
        numbers += work.rows * (model.heads // self._tensor) * seen_keys(work.length, self._prefix)
        return numbers * precision.compute

    @property
    def flash(self) -> bool:
        """Whether a fused kernel computes attention, which keeps no weights."""
        model = self._model
        return (
            self._precision.device == "gpu"
            and self._precision.mixed
            and not model.alibi
            and model.attention_dropout == 0.0
            and model.head_dim <= WIDEST_FLASH_HEAD
        )

    @property
    def _prefix(self) -> int:
        config = self._config
        return getattr(config, "num_prefix_tokens", 0) if getattr(config, "prefix_tuning", False) else 0

    def _mlp(self, work: Pass) -> int:
        model = self._model
        return work.tokens * model.inner_tensors * model.inner // self._tensor * self._precision.compute

    @property
    def _keys(self) -> int:
        """Numbers in the keys of one token that this rank computes."""
        model = self._model
        return model.key_width // (self._tensor if model.keys_are_split(self._tensor) else 1)


def seen_keys(length: int, prefix: int) -> int:
    """Attention weights of one head: queries go in blocks, and a block sees all keys up to its end."""
    ends = [*range(QUERY_BLOCK, length, QUERY_BLOCK), length]
    starts = [0, *ends[:-1]]
    return sum((end - start) * (end + prefix) for start, end in zip(starts, ends, strict=True))
