"""What is trained, and over which layouts: every combination has to give the numbers of one process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

FAMILIES = ("gemma", "bloom")
LAYERS = 4
MICRO_BATCHES = 4
"""In every step but the last one of an epoch, over all processes together."""

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Parallel:
    """A layout.

    Attributes:
        name: what tests and table call it.
        tensor, pipeline, sharding, data: the degrees.
        layers: how many the model has.
        more: arguments besides the degrees.
    """

    name: str
    tensor: int = 1
    pipeline: int = 1
    sharding: int = 1
    data: int = 1
    layers: int = LAYERS
    more: tuple[tuple[str, Any], ...] = ()

    @property
    def world(self) -> int:
        """How many processes there are."""
        return math.prod((self.tensor, self.pipeline, self.sharding, self.data))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that ask for it, with as many micro-batches in a step as one process has."""
        asked: dict[str, Any] = {
            "tensor_parallel_degree": self.tensor,
            "pipeline_parallel_degree": self.pipeline,
            "gradient_accumulation_steps": MICRO_BATCHES // (self.sharding * self.data),
        }
        if self.sharding > 1:
            asked["sharding_parallel_degree"] = self.sharding
        return asked | dict(self.more)


def _sharded(name: str, stage: int = 1, *more: tuple[str, Any], **degrees: int) -> Parallel:
    return Parallel(name, sharding=2, more=(("sharding", f"stage{stage}"), *more), **degrees)


SINGLE = Parallel("one process")
SPLIT = ("sharding_parallel_config", "split_param")
LAYOUTS = (
    Parallel("TP2", tensor=2),
    Parallel("TP2 + sequence parallel", tensor=2, more=(("sequence_parallel", True),)),
    Parallel("PP2", pipeline=2),
    Parallel("PP4 x 2 virtual", pipeline=4, layers=8, more=(("virtual_pp_degree", 2),)),
    Parallel("DP2", data=2),
    _sharded("stage 1 x2"),
    _sharded("stage 1 x2, split_param", 1, SPLIT),
    _sharded("stage 2 x2", 2),
    _sharded("stage 3 x2", 3),
    Parallel("TP2 x PP2", tensor=2, pipeline=2),
    _sharded("TP2 x stage 1", 1, tensor=2),
    _sharded("TP2 x stage 2", 2, tensor=2),
    _sharded("TP2 x stage 3", 3, tensor=2),
    _sharded("PP2 x stage 1", 1, pipeline=2),
    Parallel("DP2 x TP2", data=2, tensor=2),
    Parallel("DP2 x PP2", data=2, pipeline=2),
    _sharded("TP2 x PP2 x stage 1", 1, tensor=2, pipeline=2),
)


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        name: what tests and table call it.
        task: of the trainer.
        more: arguments.
        rate: factor of the learning rate.
        pipelines: whether a pipeline can do it.
    """

    name: str
    task: str
    more: tuple[tuple[str, Any], ...] = ()
    rate: float = 1.0
    pipelines: bool = True


def _lora(name: str, task: str) -> Method:
    return Method(name, task, (("lora", True), ("lora_rank", 4)), rate=10.0)


def _prefix(name: str) -> Method:
    more = ("prefix_tuning", True), ("num_prefix_tokens", 5)
    return Method(name, "finetune", more, rate=10.0, pipelines=False)


METHODS = (
    Method("sft", "finetune"),
    _lora("sft lora", "finetune"),
    _prefix("prefix"),
    Method("dpo", "dpo"),
    _lora("dpo lora", "dpo"),
    Method("dpo free", "dpo", (("reference_free", True),)),
    Method("dpo kto_pair sft", "dpo", (("loss_type", "kto_pair"), ("sft_loss_ratio", 0.5))),
    Method("kto", "kto"),
    _lora("kto lora", "kto"),
)


@dataclass(frozen=True)
class Combination:
    """A family trained by a method over a layout.

    Attributes:
        plain: by plain gradient descent in place of AdamW. AdamW divides a gradient by its own size, so
            weights with gradients near zero move anywhere: what it gives is compared by losses, what gradient
            descent gives by weights.
        saves: a checkpoint in the middle.
        begun_in: the layout that saved the checkpoint from which it goes on; None: it begins anew.
    """

    layout: Parallel
    family: str
    method: Method
    plain: bool = False
    saves: bool = False
    begun_in: Parallel | None = None

    def __str__(self) -> str:
        layouts = [layout.name for layout in (self.begun_in, self.layout) if layout is not None]
        words = f"{' to '.join(layouts)}-{self.family}-{self.method.name}"
        return words.replace(",", "").replace(" ", "_")

    @property
    def alone(self) -> Combination:
        """The same in one process, from its beginning."""
        layout = replace(SINGLE, layers=self.layout.layers)
        return replace(self, layout=layout, saves=False, begun_in=None)

    @property
    def origin(self) -> Combination | None:
        """What saves the checkpoint from which it goes on."""
        if self.begun_in is None:
            return None
        return replace(self, layout=self.begun_in, saves=True, begun_in=None)


def combinations(plain: bool) -> list[Combination]:
    """All there are."""
    return [
        Combination(layout, family, method, plain)
        for layout in LAYOUTS
        for family in FAMILIES
        for method in METHODS
        if method.pipelines or layout.pipeline == 1
    ]


def spread(found: list[Combination]) -> Iterator[Combination]:
    """One combination of each layout. Methods take turns, each with a family of its own: so there are few
    numbers of one process to compare with.
    """
    family_of = {method: FAMILIES[number % len(FAMILIES)] for number, method in enumerate(METHODS)}
    for turn, layout in enumerate(LAYOUTS):
        here = [one for one in found if one.layout == layout and one.family == family_of[one.method]]
        yield here[turn % len(here)]
