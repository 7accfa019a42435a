"""Task finetune: supervised fine-tuning of a causal language model."""

from __future__ import annotations

from typing import Any

from trainer import load_tokenizer
from trainer.checkpoint.find import Checkpoint
from trainer.config import FinetuneConfig
from trainer.data.encoding import build_encoder, ending_warning
from trainer.events import EventWriter
from trainer.loop.data import evaluation_data, training_rows
from trainer.loop.engine import Engine
from trainer.loop.evaluation import Evaluation, TokenEvaluation
from trainer.loop.objective import Objective, Supervised
from trainer.loop.precision import Precision
from trainer.loop.setup import Material, StopQuestion, build_collator
from trainer.loop.task import absolute_output, run_training
from trainer.parallel.layout import Layout


def finetune(config: FinetuneConfig, events: EventWriter, should_stop: StopQuestion) -> dict[str, Any]:
    """Run the task; see `trainer.loop.task.run_training`. Paths may be relative to the working directory."""
    config = absolute_output(config)
    task = _Finetuning(config, events)
    return run_training(config, events, should_stop, task.read, task.prepare)


class _Finetuning:
    """The task's own part of a training."""

    def __init__(self, config: FinetuneConfig, events: EventWriter) -> None:
        self._config = config
        self._events = events
        self._dev: TokenEvaluation | None = None

    def read(self) -> Material:
        """The data, encoded."""
        config, events = self._config, self._events
        tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
        encoder = build_encoder(config, tokenizer)
        if warning := ending_warning(config, tokenizer):
            events.warn(warning)
        collate = build_collator(config, tokenizer)
        train = training_rows(config, encoder, events) if config.do_train else None
        if config.do_eval:
            data = evaluation_data(config, encoder, tokenizer, events)
            self._dev = TokenEvaluation(data, collate, config.per_device_eval_batch_size)
        return Material(tokenizer, train, collate)

    def prepare(
        self,
        engine: Engine,
        layout: Layout,
        material: Material,
        precision: Precision,
        start: Checkpoint | None,
    ) -> tuple[Objective, Evaluation | None]:
        """Every token of an answer counts the same."""
        return Supervised(), self._dev
