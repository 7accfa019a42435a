"""Mixed precision: which one a run uses, and what it asks of a model, a loss and an update.

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
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trainer.config.problems import Problem

if TYPE_CHECKING:
    import paddle

    from trainer.config.schema import RunConfig, TrainingConfig
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


def choose_precision(config: TrainingConfig, device: str) -> tuple[Precision, Problem | None]:
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


class LossScale:
    """What a float16 loss is multiplied by, so that small gradients do not become zero.

    It falls after every step whose gradients overflowed, which is skipped, and rises when none did for long.
    The constants are those of `paddle.amp.GradScaler`, which knows only a part of the gradients where they
    are spread over processes.

    Attributes:
        value: the factor.
        good_steps: steps since it last changed.
    """

    FALL, RISE = 0.5, 2.0
    GOOD_STEPS_TO_RISE = 2000

    def __init__(self, value: float) -> None:
        self.value = value
        self.good_steps = 0

    def note(self, *, overflowed: bool) -> None:
        """Count a step, and change the factor where due."""
        if overflowed:
            self.value *= self.FALL
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps == self.GOOD_STEPS_TO_RISE:
            self.value *= self.RISE
            self.good_steps = 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, under the names of `paddle.amp.GradScaler`."""
        return {"scale": self.value, "incr_count": self.good_steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned, or from the state of a GradScaler."""
        self.value = float(np.asarray(state["scale"]).reshape([-1])[0])
        self.good_steps = int(state["incr_count"])


class FullPrecision:
    """fp32: nothing to cast and nothing to scale."""

    def prepare(self, model: CausalLM, optimizer: paddle.optimizer.AdamW) -> None:
        """Bring a fresh model and its optimizer into this precision, in place."""

    def autocast(self) -> AbstractContextManager[None]:
        """The context in which the forward pass runs."""
        return nullcontext()

    @property
    def master_weights(self) -> bool:
        """Whether the optimizer keeps fp32 copies of weights."""
        return False

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before its gradients are taken."""
        return 1.0

    def note(self, *, overflowed: bool) -> None:
        """A step was taken, or skipped because its gradients overflowed."""

    @property
    def may_skip(self) -> bool:
        """Whether a step whose gradients are not finite is skipped; otherwise it is an error."""
        return False

    @property
    def main_gradients(self) -> bool:
        """Whether gradients are added up in fp32 beside low-precision weights."""
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

        self._precision = precision
        self._main_gradients = precision.level == "O2" and config.amp_master_grad
        self._autocast = partial(
            paddle.amp.auto_cast,
            custom_white_list=O2_WHITE_LIST if precision.level == "O2" else None,
            custom_black_list=BLACK_LIST,
            level=precision.level,
            dtype=precision.dtype,
        )
        self._loss_scale = LossScale(float(config.scale_loss)) if precision.loss_scaling else None

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
                excluded_layers=fp32 or None,
            )
            model.dtype = self._precision.dtype

    def autocast(self) -> AbstractContextManager[None]:
        return self._autocast()

    @property
    def master_weights(self) -> bool:
        return self._precision.master_weights

    @property
    def loss_scale(self) -> float:
        return self._loss_scale.value if self._loss_scale else 1.0

    def note(self, *, overflowed: bool) -> None:
        if self._loss_scale:
            self._loss_scale.note(overflowed=overflowed)

    @property
    def may_skip(self) -> bool:
        return self._loss_scale is not None

    @property
    def main_gradients(self) -> bool:
        return self._main_gradients

    def state(self) -> dict[str, Any]:
        return self._loss_scale.state() if self._loss_scale else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if state and self._loss_scale:
            self._loss_scale.load_state(state)


def make_precision(precision: Precision, config: RunConfig) -> FullPrecision:
    """The object that carries out `precision`."""
    return FullPrecision() if precision == Precision() else MixedPrecision(precision, config)
