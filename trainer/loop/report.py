"""What a run says while it goes on: log lines for people, events for programs, the history for its
checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer.loop.evaluation import perplexity
from trainer.loop.peak import memory_now

if TYPE_CHECKING:
    from trainer.checkpoint.find import Checkpoint
    from trainer.events import EventWriter
    from trainer.loop.objective import Measures
    from trainer.loop.plan import Plan
    from trainer.loop.state import TrainState
    from trainer.loop.step import StepResult

log = logging.getLogger(__name__)

#: The metrics that log lines show, and what they call them.
SHOWN = {
    "ppl": "perplexity",
    "accuracy": "accuracy",
    "rouge1": "rouge1",
    "rouge2": "rouge2",
    "rougel": "rougel",
    "bleu4": "bleu4",
    "rewards/accuracies": "reward accuracy",
    "rewards/margins": "reward margin",
    "kl": "KL",
}


class Reporter:
    """Reports the progress of one run.

    Speed counts the time spent in optimizer steps: evaluating and saving do not make a run look slower.

    Attributes:
        steps, samples: optimizer steps taken, and examples trained on, by this process.
    """

    def __init__(self, events: EventWriter, plan: Plan, state: TrainState) -> None:
        self._events = events
        self._plan = plan
        self._state = state
        self._seconds = 0.0
        self._tokens = 0
        self._run_seconds = 0.0
        self.steps = 0
        self.samples = 0
        self._step_started = time.monotonic()

    def begin(self) -> None:
        """Training is about to begin, or to go on."""
        self._progress(loss=None, tokens_per_second=None)

    def step_begins(self) -> None:
        """Start the clock of one optimizer step."""
        self._step_started = time.monotonic()

    def step_ends(self, samples: int, tokens: int) -> None:
        """Stop the clock; the step had so many examples and input tokens."""
        seconds = time.monotonic() - self._step_started
        self._seconds += seconds
        self._tokens += tokens
        self._run_seconds += seconds
        self.steps += 1
        self.samples += samples

    def log_step(self, result: StepResult, rate: float) -> None:
        """Log the steps since the last line: their mean loss; the last one's rate and gradient norm."""
        state = self._state
        loss = state.interval_loss / state.interval_steps if state.interval_steps else float("nan")
        speed = self._tokens / self._seconds if self._seconds else 0.0
        measured = means(state.interval_measures)
        # The perplexity of a preference loss means nothing.
        perplexities = {} if measured else {"ppl": perplexity(loss)}
        metric = {
            "step": state.step,
            "epoch": state.epochs,
            "loss": loss,
            **perplexities,
            **measured,
            "learning_rate": rate,
            "grad_norm": result.grad_norm,
            "tokens": state.tokens,
            "padding_share": state.padding_share,
            "tokens_per_second": speed,
        }
        if state.skipped:
            metric["skipped_steps"] = state.skipped
        state.interval_loss, state.interval_steps, state.interval_measures = 0.0, 0, {}
        self._seconds, self._tokens = 0.0, 0
        state.log_history.append(metric)
        log.info(
            "step %d/%d, epoch %.2f: loss %.4f%s, learning rate %.3g, gradient norm %.3g, %.0f tokens/s%s",
            *(state.step, self._plan.total_steps, state.epochs, loss, _shown(measured), rate),
            *(result.grad_norm, speed, self._eta_text()),
        )
        self._events.write("metric", **metric, **memory_now())
        self._progress(loss=loss, tokens_per_second=speed)

    def log_evaluation(self, metrics: dict[str, float]) -> None:
        """Log an evaluation made after the present step."""
        state = self._state
        entry: dict[str, Any] = {"step": state.step, "epoch": state.epochs, **metrics}
        state.log_history.append(entry)
        log_metrics(self._events, entry)

    def saved(self, checkpoint: Checkpoint, metrics: dict[str, float], best: bool) -> None:
        """A checkpoint is complete on disk."""
        log.info("saved %s%s", checkpoint.path, " (the best so far)" if best else "")
        self._events.write(
            "checkpoint",
            name=checkpoint.name,
            path=str(checkpoint.path),
            step=checkpoint.step,
            metrics=metrics,
            best=best,
        )

    def removed(self, checkpoint: Checkpoint) -> None:
        """A checkpoint was removed because of save_total_limit."""
        log.info("removed %s (save_total_limit)", checkpoint.path)
        self._events.write("checkpoint_removed", name=checkpoint.name)

    def _progress(self, loss: float | None, tokens_per_second: float | None) -> None:
        self._events.write(
            "progress",
            step=self._state.step,
            total_steps=self._plan.total_steps,
            epoch=self._state.epochs,
            total_epochs=self._plan.total_epochs,
            eta_s=self._eta(),
            loss=loss,
            tokens_per_second=tokens_per_second,
        )

    def _eta(self) -> float | None:
        if not self.steps:
            return None
        return self._run_seconds / self.steps * max(0, self._plan.total_steps - self._state.step)

    def _eta_text(self) -> str:
        seconds = self._eta()
        if not seconds:
            return ""
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f", {hours}:{minutes:02d}:{rest:02d} left"


def means(measures: Measures) -> dict[str, float]:
    """The mean of everything that was measured at least once.

    Where there are ``rewards/chosen`` and ``rewards/rejected`` but no margins of single pairs, their
    difference is ``rewards/margins``.
    """
    found = {name: total / count for name, (total, count) in measures.items() if count}
    if "rewards/margins" not in found and {"rewards/chosen", "rewards/rejected"} <= found.keys():
        found["rewards/margins"] = found["rewards/chosen"] - found["rewards/rejected"]
    return found


def _shown(metrics: Mapping[str, float]) -> str:
    """The metrics worth a place in a log line."""
    return "".join(f", {words} {metrics[name]:.4g}" for name, words in SHOWN.items() if name in metrics)


def log_metrics(events: EventWriter, entry: dict[str, Any]) -> None:
    """Log one evaluation and write its event."""
    measured = {name.removeprefix("eval_"): value for name, value in entry.items()}
    log.info(
        "evaluation after step %d: loss %.4f%s, %.1f s",
        *(entry["step"], entry["eval_loss"], _shown(measured), entry["eval_runtime"]),
    )
    events.write("eval", **entry)
