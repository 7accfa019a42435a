"""Learning-rate schedules: pure functions of the step, so a resumed run needs no schedule object.

With s = optimizer steps already taken, w = warmup steps and T = total steps, the rate is ``learning_rate *
factor``:

* every schedule but ``constant``, s < w:  s / max(1, w)   (the very first step runs at rate 0)
* ``linear``:                max(0, (T - s) / max(1, T - w))
* ``cosine``:                max(0, (1 + cos(2 pi num_cycles p)) / 2),  p = (s - w) / max(1, T - w)
* ``polynomial``:            ((lr - lr_end) (1 - (s - w) / (T - w))^power + lr_end) / lr;  lr_end / lr after T
* ``constant``, ``constant_with_warmup``:  1

These are the definitions of Hugging Face transformers and PaddleNLP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """A learning-rate schedule over `total_steps` optimizer steps.

    `kind` is one of linear, cosine, constant, constant_with_warmup, polynomial; `num_cycles` belongs to
    cosine, `lr_end` and `power` to polynomial.
    """

    kind: str
    learning_rate: float
    warmup_steps: int
    total_steps: int
    num_cycles: float = 0.5
    lr_end: float = 1e-7
    power: float = 1.0

    def rate(self, step: int) -> float:
        """The learning rate of the step after `step` optimizer steps have been taken."""
        return self.learning_rate * self._factor(step)

    def _factor(self, step: int) -> float:
        if self.kind == "constant":
            return 1.0
        if step < self.warmup_steps:
            return step / max(1, self.warmup_steps)
        if self.kind == "constant_with_warmup":
            return 1.0
        decay_steps = max(1, self.total_steps - self.warmup_steps)
        progress = (step - self.warmup_steps) / decay_steps
        if self.kind == "linear":
            return max(0.0, (self.total_steps - step) / decay_steps)
        if self.kind == "cosine":
            return max(0.0, 0.5 * (1.0 + math.cos(2.0 * math.pi * self.num_cycles * progress)))
        return self._polynomial(progress)

    def _polynomial(self, progress: float) -> float:
        if self.learning_rate == 0.0:
            return 0.0
        remaining = max(0.0, 1.0 - progress) ** self.power
        return ((self.learning_rate - self.lr_end) * remaining + self.lr_end) / self.learning_rate


def warmup_steps(steps: int, ratio: float, total_steps: int) -> int:
    """Warmup length in optimizer steps: `steps` when it is positive, else ``int(ratio * total_steps)``."""
    return steps if steps > 0 else int(ratio * total_steps)
