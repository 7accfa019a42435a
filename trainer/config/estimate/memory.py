"""What one device holds at the moment when it holds most, part by part.

A run has a few such moments: the model is loaded, a step is at its loss (all activations are there), a layer
is computed again, the weights are changed, the dev data are evaluated. Each is added up, and the largest is
the estimate. Gradients are there in all of them but the first: after a step they are set to zero, not freed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainer.config.estimate.activations import FLOAT32, Activations, Pass, Precision
from trainer.config.estimate.architecture import Architecture
from trainer.config.estimate.constants import RUNTIME, SLACK
from trainer.config.estimate.parameters import Held, held, sharded, trains_adapter
from trainer.config.fields.preference import WITHOUT_REFERENCE
from trainer.config.schema import DpoConfig, PreferenceConfig, RunConfig
from trainer.config.topology import Topology


@dataclass(frozen=True)
class Parts:
    """Bytes on one device.

    Attributes:
        weights: of the model and its adapter.
        gradients: of what is trained.
        optimizer_state: AdamW's two moments.
        master_weights: float32 copies of 16-bit weights.
        activations: what the backward pass needs of the forward pass.
        loss: logits, and the gradient of the vocabulary projection while it is made.
        reference_model: the frozen model of dpo and kto.
        buffers: copies for clipping, communication and checkpoints; statistics of quantization.
        allocator: what the allocator takes from the system and cannot use.
        runtime: Python, Paddle and its libraries.
    """

    weights: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    master_weights: int = 0
    activations: int = 0
    loss: int = 0
    reference_model: int = 0
    buffers: int = 0
    allocator: int = 0
    runtime: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(vars(self).values())

    @property
    def tensors(self) -> int:
        """What Paddle's allocator is asked for."""
        return self.total - self.allocator - self.runtime

    def with_overhead(self, device: str) -> "Parts":
        """With what is not tensors."""
        coming_and_going = self.activations + self.loss + self.buffers
        return replace(self, allocator=int(SLACK[device] * coming_and_going), runtime=RUNTIME[device])


@dataclass(frozen=True)
class Memory:
    """The memory of the fullest device.

    Attributes:
        moment: when it holds most.
        parts: what it holds then.
        stage: of the pipeline, from 0; None without one.
    """

    moment: str
    parts: Parts
    stage: int | None = None

    @property
    def total(self) -> int:
        """Bytes, all parts together."""
        return self.parts.total


#: Moments, as messages and tables call them.
LOADING, STEP, RECOMPUTE, UPDATE, EVALUATION = (
    "loading the model",
    "the loss of a step",
    "computing a layer again",
    "changing the weights",
    "evaluation",
)


def run_memory(
    model: Architecture,
    config: RunConfig,
    topology: Topology,
    device: str,
    work: Pass,
    dev: Pass,
) -> Memory:
    """Of a training, or of an evaluation.

    Args:
        device: "cpu" or "gpu".
        work: the largest micro-batch.
        dev: the largest batch of an evaluation.
    """
    stages = list(stages_of(model.layers, topology))
    found = []
    for number, (layers, ends) in enumerate(stages):
        state = _State(model, config, topology, device, layers, ends, number)
        moments = state.training(work, dev) if config.do_train else state.evaluating(dev)
        place = number if len(stages) > 1 else None
        found += [Memory(moment, parts.with_overhead(device), place) for moment, parts in moments]
    return max(found, key=lambda memory: memory.total)


class _State:
    """What a process of one pipeline stage holds, moment by moment."""

    def __init__(
        self,
        model: Architecture,
        config: RunConfig,
        topology: Topology,
        device: str,
        layers: range,
        ends: str,
        stage: int,
    ) -> None:
        self.config, self.topology, self.device = config, topology, device
        self.precision = Precision.of(config, device)
        self.activations = Activations(model, config, topology, self.precision)
        self.held: Held = held(model, config, topology, layers, ends=ends)
        self.layers, self.ends = len(layers), ends
        self.head = ends in ("last", "both")
        self.in_flight = _passes_in_flight(config, topology, stage)
        self.embedding = model.embedding(topology.tensor)

    def training(self, work: Pass, dev: Pass) -> Iterator[tuple[str, Parts]]:
        """Every moment that may be the fullest."""
        yield LOADING, self._loaded()
        steady = self._steady()
        trained = not trains_adapter(self.config)
        loss = self.activations.loss(work, trained=trained) if self.head else 0
        yield STEP, replace(steady, activations=self._left_behind(work), loss=loss)
        if self.config.recompute:
            again = self._left_behind(work) + self.activations.of_layer(work)
            head = self.embedding * FLOAT32 if trained and self.head else 0
            yield RECOMPUTE, replace(steady, activations=again, loss=head)
        yield UPDATE, replace(steady, buffers=steady.buffers + self._update_buffers())
        if self.config.do_eval:
            yield EVALUATION, self._evaluation(steady, dev)

    def evaluating(self, dev: Pass) -> Iterator[tuple[str, Parts]]:
        """The moments of a run that trains nothing; its weights stay float32."""
        yield EVALUATION, self._evaluation(self._loaded(), dev)

    def _loaded(self) -> Parts:
        """Weights are float32 at first; the reference is loaded beside them."""
        weights = (self.held.base + self.held.adapter) * FLOAT32
        return Parts(weights=weights, reference_model=self._reference())

    def _steady(self) -> Parts:
        """What is there all the time from the second step on."""
        here, topology, precision = self.held, self.topology, self.precision
        whole = not trains_adapter(self.config)
        trained, each = (here.base, precision.weight) if whole else (here.adapter, FLOAT32)
        largest = here.largest if whole else 0
        spread = [sharded(trained, largest, topology, stage) for stage in (1, 2, 3)]
        base = here.base if topology.stage < 3 else sharded(here.base, here.largest, topology, 3)
        if topology.stage == 3:
            base += here.layer  # gathered while it runs
        adapter = 0 if whole else spread[2]
        main = self.config.amp_master_grad or topology.split_param
        gradient = FLOAT32 if main and precision.master else each
        return Parts(
            weights=base * precision.weight + adapter * FLOAT32,
            gradients=spread[1] * gradient,
            optimizer_state=2 * spread[0] * FLOAT32,
            master_weights=spread[0] * FLOAT32 if whole and precision.master else 0,
            reference_model=self._reference(),
            buffers=self._checkpoint_copy(spread[0]),
        )

    def _left_behind(self, work: Pass) -> int:
        """Activations of all passes that wait for their backward pass."""
        of_passes = self.layers * self.activations.kept(work) * self.in_flight
        return of_passes + self._cast_weights() + (self.activations.of_ends(work) if self.head else 0)

    def _cast_weights(self) -> int:
        """With O1 each product keeps the 16-bit copy of its weight."""
        precision = self.precision
        if precision.compute == precision.weight or (
            self.config.recompute and self.config.recompute_granularity == "full"
        ):
            return 0
        return self.held.layer * self.layers * precision.compute * self.in_flight

    def _update_buffers(self) -> int:
        """fp16 gradients become float32 to be clipped; data parallelism sums copies of them."""
        here, config = self.held, self.config
        whole = not trains_adapter(config)
        trained, each = (here.base, self.precision.weight) if whole else (here.adapter, FLOAT32)
        gradients = sharded(trained, here.largest if whole else 0, self.topology, 2)
        wide = gradients * FLOAT32 if config.fp16 and each < FLOAT32 and not config.amp_master_grad else 0
        copies = gradients * each if self.topology.data > 1 and self.topology.stage == 0 else 0
        return wide + copies

    def _evaluation(self, steady: Parts, dev: Pass) -> Parts:
        loss = self.activations.loss(dev, trained=False) if self.head else 0
        return replace(steady, activations=self.activations.forward_only(dev), loss=loss)

    def _reference(self) -> int:
        if not isinstance(self.config, PreferenceConfig) or not needs_second_model(self.config):
            return 0
        return self.held.base * self.precision.weight

    def _checkpoint_copy(self, trained: int) -> int:
        """A checkpoint that is written beside training is copied first; on a GPU, into the host's memory."""
        config = self.config
        beside = (
            bool(config.use_async_save) or "async_save" in (config.unified_checkpoint_config or "").split()
        )
        if self.device != "cpu" or not beside or config.save_strategy == "no":
            return 0
        return trained * FLOAT32 * (1 if config.ignore_save_lr_and_optim else 3)


def needs_second_model(config: PreferenceConfig) -> bool:
    """Whether a frozen copy of the whole model is held in the steps."""
    if config.lora or config.precompute_ref_log_probs:
        return False
    return not (
        isinstance(config, DpoConfig) and (config.reference_free or config.loss_type in WITHOUT_REFERENCE)
    )


def stages_of(layers: int, topology: Topology) -> Iterator[tuple[range, str]]:
    """The decoder layers of every process of a pipeline, and which ends of the model it has."""
    if topology.pipeline == 1:
        yield range(layers), "both"
        return
    count = topology.pipeline * topology.virtual
    share, left_over = divmod(layers, count)
    larger = [*range(1, count - 1), 0][:left_over]
    sizes = [share + (chunk in larger) for chunk in range(count)]
    for rank in range(topology.pipeline):
        here = range(sum(sizes[rank :: topology.pipeline]))
        yield here, "first" if rank == 0 else "last" if rank == topology.pipeline - 1 else "none"


def _passes_in_flight(config: RunConfig, topology: Topology, stage: int) -> int:
    """Forward passes whose backward pass is still to come: the first stage of a pipeline is ahead of all."""
    if topology.pipeline == 1:
        return 1
    ahead = topology.pipeline - stage
    if topology.virtual > 1:
        ahead += topology.pipeline - stage - 1
    return max(1, min(ahead, config.gradient_accumulation_steps))
