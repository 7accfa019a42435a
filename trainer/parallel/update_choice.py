"""Which updater a layout needs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import paddle.distributed as distributed
from paddle import Tensor

from trainer.loop.optimizer import build_optimizer
from trainer.loop.precision import FullPrecision
from trainer.models.base import CausalLM
from trainer.parallel.clip import SLICE_PREFIX, GlobalNormClip
from trainer.parallel.layout import Layout
from trainer.parallel.sharded_state import Copies
from trainer.parallel.update import Updater, with_main_gradients

if TYPE_CHECKING:
    from trainer.config.schema import RunConfig

SEGMENT_SIZE = 2**20
"""Parameters with more numbers than this are cut up in stage 3; Paddle's default."""


def make_updater(
    model: CausalLM,
    config: RunConfig,
    precision: FullPrecision | None = None,
    layout: Layout | None = None,
    *,
    tied: Collection[str] = (),
    segment_size: int = SEGMENT_SIZE,
) -> Updater:
    """The updater of a layout. The model's weights are loaded; their dtypes may change here.

    Args:
        model: what of the model is here.
        config: its max_grad_norm, weight_decay and adam_* apply.
        precision: None: fp32.
        layout: None: a single process.
        tied: Paddle's names of the parameters that the first and the last stage of a pipeline both have.
        segment_size: parameters with more numbers than this are cut up in stage 3.
    """
    precision, layout = precision or FullPrecision(), layout or Layout.single()
    copies, topology = Copies(layout, tied), layout.topology
    clip = GlobalNormClip(config.max_grad_norm, _count(model, copies, layout), _add_up(layout))
    optimizer = build_optimizer(
        model.parameters(), config, master_weights=precision.master_weights, clip=clip
    )
    precision.prepare(model, optimizer)
    if topology.split_param or precision.main_gradients:
        optimizer = with_main_gradients(model, optimizer)
    place = model, optimizer, clip, precision, layout, copies
    if topology.stage == 0:
        return Updater(*place)
    from trainer.parallel import update_sharded

    if topology.stage == 1:
        return (update_sharded.SplitUpdater if topology.split_param else update_sharded.StateUpdater)(*place)
    if topology.stage == 2:
        return update_sharded.GradientUpdater(*place)
    return update_sharded.WeightUpdater(*place, segment_size)


def _count(model: CausalLM, copies: Copies, layout: Layout) -> Callable[[Tensor], int]:
    """How many processes have the same gradient as this one, of a parameter or a part of it."""
    trainable = {parameter.name: parameter for parameter in model.parameters() if not parameter.stop_gradient}
    # Sharding leaves each gradient to one process, but in stage 3 only those of sliced parameters.
    whole_ones = layout.topology.stage == 3

    def count(part: Tensor) -> int:
        parameter = trainable[part.name.removeprefix(SLICE_PREFIX)]
        return copies.count(parameter, everywhere=whole_ones and part.name == parameter.name)

    return count


def _add_up(layout: Layout) -> Callable[[Tensor], None]:
    def add_up(total: Tensor) -> None:
        if not layout.topology.single:
            distributed.all_reduce(total)

    return add_up
