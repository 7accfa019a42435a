"""Steps where optimizer state, gradients or weights are spread over a sharding group, by Paddle Fleet.

The optimizer state of every parameter, or of every equal part of one, is in one process of the group
(Rajbhandari et al., arXiv 1910.02054): stage 1. In stage 2 the gradients are so too, in stage 3 the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import paddle
import paddle.distributed as distributed
from paddle import Tensor, nn
from paddle.base.framework import EagerParamBase
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_stage3 import _release_param
from paddle.distributed.sharding import group_sharded_parallel

from trainer.loop.precision import FullPrecision
from trainer.models.base import CausalLM
from trainer.models.passes import Pass
from trainer.parallel.clip import SLICE_PREFIX, GlobalNormClip
from trainer.parallel.layout import Layout
from trainer.parallel.sharded_state import Copies, Part
from trainer.parallel.update import Updater, fill_missing_gradients
from trainer.peft.prefix.encoder import PrefixEncoder


class StateUpdater(Updater):
    """Stage 1: the state of each parameter is in one process, which changes it and gives it to the others.

    Args: see `Updater`; `optimizer` may add up main gradients.

    Attributes:
        fleet_optimizer: Fleet's optimizer, which its pipelines want to see.
    """

    def __init__(
        self,
        model: CausalLM,
        optimizer: Any,
        clip: GlobalNormClip,
        precision: FullPrecision,
        layout: Layout,
        copies: Copies,
    ) -> None:
        super().__init__(model, optimizer, clip, precision, layout, copies)
        self.fleet_optimizer: Any = cast(Any, fleet).distributed_optimizer(optimizer)

    @property
    def _sharding(self) -> Any:
        return self.fleet_optimizer._inner_opt

    def _change_weights(self) -> None:
        # Fleet does so too, but where it makes a gradient it then loses what the others bring.
        fill_missing_gradients(self.trainable)
        self.fleet_optimizer.step()

    def _clear(self) -> None:
        self.fleet_optimizer.clear_grad()

    def _parts(self) -> Iterable[Part]:
        mine = self._sharding._rank2params[self.layout.sharding_rank]
        return [Part(parameter, parameter) for parameter in mine]


class SplitUpdater(StateUpdater):
    """Stage 1 where each process has the state of an equal part of every parameter (`split_param`).

    Fleet reads gradients only from `main_grad` after the first step, so there have to be main gradients.
    """

    def __init__(
        self,
        model: CausalLM,
        optimizer: Any,
        clip: GlobalNormClip,
        precision: FullPrecision,
        layout: Layout,
        copies: Copies,
    ) -> None:
        super().__init__(model, optimizer, clip, precision, layout, copies)
        # Fleet would do this only when it has summed up the gradients of the first step, and it does not sum
        # those of parameters without their slices over data parallelism.
        self._sharding._collect_comm_buffers()
        self._sharding._assign_slice_grad()

    def _parts(self) -> Iterable[Part]:
        sharding = self._sharding
        parts = []
        for buffer in sharding._comm_buffer_list:
            for parameter in buffer.params:
                view = buffer._sharding_param_grad_view[parameter.name]
                if view.has_effective_slice_param:
                    first = view._param_begin - view._index
                    end = min(view._param_end - view._index, parameter.size)
                    parts.append(
                        Part(parameter, sharding._slice_params[parameter.name], (min(first, end), end))
                    )
        return parts


class GradientUpdater(Updater):
    """Stage 2: each gradient is summed up in the process that has the state, during the backward pass."""

    all_must_run = True

    def __init__(
        self,
        model: CausalLM,
        optimizer: Any,
        clip: GlobalNormClip,
        precision: FullPrecision,
        layout: Layout,
        copies: Copies,
    ) -> None:
        super().__init__(model, optimizer, clip, precision, layout, copies)
        self._wrapped, self._fleet_optimizer, _ = group_sharded_parallel(
            _Runner(model), optimizer, "os_g", group=layout.sharding_group, dp_group=layout.dp_group
        )

    def run(self, work: Pass) -> Tensor:
        return self._wrapped(work)

    def _change_weights(self) -> None:
        self._fleet_optimizer.step()

    def _clear(self) -> None:
        self._fleet_optimizer.clear_grad()

    def _parts(self) -> Iterable[Part]:
        rank_of: dict[str, int] = cast(Any, self._fleet_optimizer).param2rank
        mine = (p for p in self.trainable if rank_of[p.name] == self.layout.sharding_rank)
        return [Part(parameter, parameter) for parameter in mine]


class WeightUpdater(Updater):
    """Stage 3: weights are here only while the layer that holds them runs; otherwise a slice of each.

    Small parameters stay whole everywhere, with their gradients and state.

    Args:
        segment_size: parameters with more numbers than this are sliced.
    """

    all_must_run = True

    def __init__(
        self,
        model: CausalLM,
        optimizer: Any,
        clip: GlobalNormClip,
        precision: FullPrecision,
        layout: Layout,
        copies: Copies,
        segment_size: int,
    ) -> None:
        super().__init__(model, optimizer, clip, precision, layout, copies)
        # Fleet's asynchronous way gathers the weights of the layer that came next in the first pass, and uses
        # what it gathered when that layer runs again: after a pass that left the layer out (without its
        # adapter, say) and a step that would be an old weight.
        self._wrapped, self._fleet_optimizer, _ = group_sharded_parallel(
            _Runner(model),
            optimizer,
            "p_g_os",
            group=layout.sharding_group,
            dp_group=layout.dp_group,
            segment_size=segment_size,
            sync_comm=True,
            # What it returns may be its parameter itself, and that has to stay when it has run.
            exclude_layer=[id(layer) for layer in model.sublayers() if isinstance(layer, PrefixEncoder)],
        )
        self._sliced = [parameter for parameter in model.parameters() if hasattr(parameter, "fw_storage")]
        self._frozen = [parameter for parameter in self._sliced if parameter.stop_gradient]
        names = {parameter.name for parameter in self._frozen}
        for layer in model.sublayers():
            frozen = [p for p in layer.parameters(include_sublayers=False) if p.name in names]
            if frozen:
                hook: Any = partial(self._release_after_backward, frozen)
                layer.register_forward_pre_hook(hook)

    def run(self, work: Pass) -> Tensor:
        self._release(self._frozen)
        return self._wrapped(work)

    @paddle.no_grad()
    def whole(self, parameter: Any) -> Tensor:
        if getattr(parameter, "status", "all") == "all":
            return parameter
        slices: list[Tensor] = []
        distributed.all_gather(slices, parameter.fw_storage, group=self.layout.sharding_group)
        return paddle.concat(slices)[: parameter.size].reshape(parameter.shape)

    def _change_weights(self) -> None:
        self._release(self._frozen)
        self._fleet_optimizer.step()

    def _clear(self) -> None:
        for parameter in self._sliced:
            if isinstance(parameter.fw_storage, EagerParamBase):
                parameter.fw_storage.clear_gradient(False)
            parameter.bw_storage = None
        for storage in self._wrapped._grad_storages.values():
            storage.buffer.zero_()

    def _release_after_backward(self, frozen: Sequence[Any], layer: Any, inputs: tuple[Any, ...]) -> Any:
        """Have the weights of a layer go when its backward pass is done.

        Fleet gathers weights for the backward pass of a layer and lets them go when they have their
        gradients, which frozen ones never get: all of a base model would gather in every process.
        """
        first, *others = inputs
        if first.stop_gradient or not paddle.is_grad_enabled():
            return inputs  # no gradient will tell; `run` and the step release these
        first = first.reshape(first.shape)  # an alias of this layer's own, whose gradient comes last

        def release(gradient: Tensor) -> None:
            self._release(frozen)

        first.register_hook(release)
        return (first, *others)

    def _release(self, parameters: Iterable[Any]) -> None:
        """Keep only the slices of parameters that were gathered."""
        buffers, tasks = self._wrapped._param2buffer, self._wrapped._task_flow
        for parameter in parameters:
            if parameter.status == "all":
                parameter.use_count = 1
                _release_param([parameter], buffers, self.layout.sharding_rank, tasks)

    def _parts(self) -> Iterable[Part]:
        sliced = list(self._slices(self.trainable))
        names = {part.parameter.name for part in sliced}
        whole = [Part(p, p, everywhere=True) for p in self.trainable if p.name not in names]
        return sliced + whole

    def _cut(self) -> Iterable[Part]:
        return self._slices(self._sliced)

    def _slices(self, parameters: Iterable[Any]) -> Iterator[Part]:
        for parameter in parameters:
            if hasattr(parameter, "fw_storage"):
                start, stop = self._wrapped._param2buffer[parameter.name][self.layout.sharding_rank]
                span = min(start, parameter.size), min(stop, parameter.size)
                yield Part(parameter, _named_slice(parameter), span)


class _Runner(nn.Layer):
    """Gives Fleet a layer to wrap whose forward pass runs a `Pass`."""

    def __init__(self, model: CausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Pass) -> Tensor:
        return self.model.run(work)


def _named_slice(parameter: Any) -> Tensor:
    """The slice of a parameter that is here, under the name that Fleet's optimizer knows it by."""
    slice_: Any = parameter.fw_storage
    named = EagerParamBase(shape=slice_.shape, dtype=slice_.dtype, name=SLICE_PREFIX + parameter.name)
    slice_._share_buffer_to(named)
    return named
