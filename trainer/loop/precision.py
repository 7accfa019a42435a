"""Mixed precision: which one a run uses, and how a backward pass and an update are made in it.

On CPU every run is fp32; the classes below that leave fp32 are for GPUs only.

* O1: weights stay fp32, operators run in fp16 or bf16 under autocast.
* O2: weights are cast to fp16 or bf16, the optimizer keeps fp32 master copies.
* fp16 gradients are scaled so that they do not underflow; when they overflow, the step is skipped and the
  scale falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from trainer.config.problems import Problem

if TYPE_CHECKING:
    import paddle

    from trainer.config.schema import RunConfig
    from trainer.models.base import CausalLM

#: Operators that O1 and O2 keep in fp32 besides Paddle's own list, and one that O2 runs in low precision.
BLACK_LIST = {"reduce_sum", "c_softmax_with_cross_entropy"}
O2_WHITE_LIST = {"lookup_table", "lookup_table_v2"}


@dataclass(frozen=True)
class Precision:
    """The dtype computed in ("float32", "float16", "bfloat16") and the level of mixing ("O0", "O1", "O2")."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    level: Literal["O0", "O1", "O2"] = "O0"

    @property
    def master_weights(self) -> bool:
        return self.level == "O2"

    @property
    def loss_scaling(self) -> bool:
        return self.dtype == "float16"


def choose_precision(config: RunConfig, device: str) -> tuple[Precision, Problem | None]:
    """The precision for `device` ("cpu" or "gpu"), and a warning when it is not what the config asks for."""
    if not (config.fp16 or config.bf16) or config.fp16_opt_level == "O0":
        return Precision(), None
    name = "fp16" if config.fp16 else "bf16"
    if device == "cpu":
        return Precision(), Problem(
            (name,),
            f"{name} was asked for, and this run is on CPU, where it runs as fp32",
            "The numbers are those of an fp32 run; mixed precision needs a GPU.",
        )
    return Precision("float16" if config.fp16 else "bfloat16", config.fp16_opt_level), None


class FullPrecision:
    """fp32: nothing to cast and nothing to scale."""

    def prepare(self, model: CausalLM, optimizer: paddle.optimizer.AdamW) -> None:
        """Bring a fresh model and its optimizer into this precision, in place."""

    def autocast(self) -> AbstractContextManager[None]:
        """The context in which the forward pass runs."""
        return nullcontext()

    def backward(self, loss: paddle.Tensor) -> None:
        """Add the gradients of `loss`."""
        loss.backward()

    def unscale(self, optimizer: paddle.optimizer.AdamW) -> None:
        """Bring the gradients back to their true size, before their norm is taken."""

    def update(self, optimizer: paddle.optimizer.AdamW) -> None:
        """Change the weights."""
        optimizer.step()

    @property
    def may_skip(self) -> bool:
        """Whether a step whose gradients are not finite is skipped; otherwise it is an error."""
        return False

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of this object (JSON-able)."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""


class MixedPrecision(FullPrecision):
    """fp16 or bf16 through `paddle.amp`. GPU only.

    Args:
        precision: what `choose_precision` chose.
        config: its scale_loss and amp_master_grad apply.
    """

    def __init__(self, precision: Precision, config: RunConfig) -> None:
        import paddle

        self._master_grad = config.amp_master_grad
        self._precision = precision
        self._autocast = partial(
            paddle.amp.auto_cast,
            custom_white_list=O2_WHITE_LIST if precision.level == "O2" else None,
            custom_black_list=BLACK_LIST,
            level=precision.level,
            dtype=precision.dtype,
        )
        self._scaler = paddle.amp.GradScaler(
            enable=precision.loss_scaling, init_loss_scaling=float(config.scale_loss)
        )

    def prepare(self, model: CausalLM, optimizer: paddle.optimizer.AdamW) -> None:
        import paddle

        if self._precision.level == "O2":
            fp32: list[Any] = model.adapter.fp32_layers() if model.adapter else []
            paddle.amp.decorate(
                models=model,
                optimizers=optimizer,
                level="O2",
                dtype=self._precision.dtype,
                master_weight=True,
                master_grad=self._master_grad,
                excluded_layers=fp32 or None,
            )
            model.dtype = self._precision.dtype

    def autocast(self) -> AbstractContextManager[None]:
        return self._autocast()

    def backward(self, loss: paddle.Tensor) -> None:
        self._scaler.scale(loss).backward()

    def unscale(self, optimizer: paddle.optimizer.AdamW) -> None:
        if self.may_skip:
            self._scaler.unscale_(optimizer)

    def update(self, optimizer: paddle.optimizer.AdamW) -> None:
        self._scaler.step(optimizer)
        self._scaler.update()

    @property
    def may_skip(self) -> bool:
        return self._precision.loss_scaling

    def state(self) -> dict[str, Any]:
        scaler = self._scaler.state_dict()
        return {name: np.asarray(value).tolist() for name, value in scaler.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if state:
            self._scaler.load_state_dict(cast(Any, dict(state)))


def make_precision(precision: Precision, config: RunConfig) -> FullPrecision:
    """The object that carries out `precision`."""
    return FullPrecision() if precision == Precision() else MixedPrecision(precision, config)
