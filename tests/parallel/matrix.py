"""Runs combinations, all of a layout in one group of processes, and compares them with one process."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.parallel.cases import Combination
from tests.parallel.data import build_model, write_data
from tests.parallel.training import Job, Outcome, Part, train_all
from tests.ranks import RankError, run_ranks

STEPS, PLAIN_STEPS = 8, 4
MIDDLE = 4
"""After so many steps the model is evaluated, and saved where that is wanted."""
RATE, PLAIN_RATE = 3e-3, 0.1
LEAST_METRIC = 1.0
"""Rewards are small differences of log-probabilities, so their errors are those of greater numbers."""
SECONDS_EACH = 60
"""So long a training may take on a busy machine."""

SFT = {"src_length": 24, "max_length": 48}
PREFERENCES = {"max_prompt_len": 24, "max_seq_len": 48}


@dataclass(frozen=True)
class Difference:
    """The largest differences from one process.

    Attributes:
        loss, norm, metric: relative, of losses of steps, of norms of gradients, of metrics of evaluations.
        weight: absolute.
        seconds: the training took.
    """

    loss: float
    norm: float
    metric: float
    weight: float
    seconds: float


@dataclass
class Matrix:
    """What was found out so far.

    Attributes:
        folder: models, data and results are below it.
        wanted: all combinations that tests will ask for.
        outcomes: of every process, or why there are none.
        differences: what was compared.
    """

    folder: Path
    wanted: Sequence[Combination]
    outcomes: dict[Combination, list[Outcome] | RankError] = field(default_factory=dict)
    differences: dict[Combination, Difference] = field(default_factory=dict)

    def difference(self, combination: Combination) -> Difference:
        """How far a combination is from one process.

        Raises:
            RankError: it could not be trained.
        """
        expected = self.trained(combination.alone)[0]
        found = self.trained(combination)
        self.differences[combination] = difference = compare(found, expected)
        return difference

    def trained(self, combination: Combination) -> list[Outcome]:
        """The outcomes of a combination in the order of ranks.

        Raises:
            RankError: there is none.
        """
        if combination not in self.outcomes:
            if combination.origin is not None:
                self.trained(combination.origin)
            self._train(combination)
        outcomes = self.outcomes[combination]
        if isinstance(outcomes, RankError):
            raise outcomes
        return outcomes

    def _train(self, first: Combination) -> None:
        """Train `first`, and whatever else will be wanted and can be trained in the same processes now."""
        wanted = {first: None}
        for combination in self.wanted:
            for one in (combination, combination.alone, combination.origin):
                if one is None or one.layout != first.layout or one in self.outcomes:
                    continue
                if one.origin is None or isinstance(self.outcomes.get(one.origin), list):
                    wanted[one] = None
        jobs = [self._job(combination) for combination in wanted]
        while jobs:
            jobs = self._train_some(jobs)

    def _train_some(self, jobs: Sequence[Job]) -> list[Job]:
        """Train one after the other until one fails; returns those that are left."""
        error, world = None, jobs[0].combination.layout.world
        try:
            run_ranks(world, train_all, jobs, timeout_s=SECONDS_EACH * len(jobs))
        except RankError as raised:
            error = raised
        for number, job in enumerate(jobs):
            results = [job.result(rank) for rank in range(world)]
            if not all(result.exists() for result in results):
                assert error is not None
                self.outcomes[job.combination] = error
                return list(jobs[number + 1 :])
            self.outcomes[job.combination] = [
                pickle.loads(result.read_bytes())  # noqa: S301  (written by ranks of ours)
                for result in results
            ]
        return []

    def _job(self, combination: Combination) -> Job:
        return Job(combination, self.arguments(combination), self._place(combination) / "results")

    def _place(self, combination: Combination) -> Path:
        switches = "".join(str(int(switch)) for switch in (combination.plain, combination.saves))
        return self.folder / "runs" / f"{combination}-{combination.layout.layers}-{switches}"

    def _output(self, combination: Combination) -> Path:
        return self._place(combination) / "output"

    def arguments(self, combination: Combination) -> dict[str, Any]:
        """The arguments of a combination."""
        method, data = combination.method, self.folder / "data"
        if not data.exists():
            write_data(data)
        if method.task == "finetune":
            files = {"dataset_name_or_path": str(data / "sft"), **SFT}
        else:
            names = {"train": "train_dataset_path", "dev": "dev_dataset_path"}
            files = {field: str(data / f"{method.task}-{split}.jsonl") for split, field in names.items()}
            files |= PREFERENCES
        length: dict[str, Any] = {"max_steps": PLAIN_STEPS if combination.plain else STEPS}
        if combination.saves:
            length |= {"save_strategy": "steps", "save_steps": MIDDLE}
        if combination.origin is not None:
            length["resume_from_checkpoint"] = str(self._output(combination.origin) / f"checkpoint-{MIDDLE}")
        return {
            "save_strategy": "no",
            "model_name_or_path": str(self._model(combination)),
            "output_dir": str(self._output(combination)),
            "do_train": True,
            "do_eval": True,
            "evaluation_strategy": "steps",
            "eval_steps": MIDDLE,
            "logging_steps": 1,
            "per_device_train_batch_size": 2 if method.task == "finetune" else 1,
            "per_device_eval_batch_size": 2,
            "learning_rate": method.rate * (PLAIN_RATE if combination.plain else RATE),
            "weight_decay": 0.1,
            "max_grad_norm": 0.5,
            "seed": 7,
            **files,
            **length,
            **dict(method.more),
            **combination.layout.arguments,
        }

    def _model(self, combination: Combination) -> Path:
        folder, layers = self.folder / "models", combination.layout.layers
        model = folder / f"{combination.family}-{layers}"
        return model if model.exists() else build_model(folder, combination.family, layers)


def compare(found: Sequence[Outcome], expected: Outcome) -> Difference:
    """The largest differences of any process. What was resumed is compared from there on."""
    steps, metrics = expected.losses[-len(found[0].losses) :], values(expected)[-len(values(found[0])) :]
    norms = expected.norms[-len(found[0].norms) :]
    return Difference(
        loss=max(relative(one.losses, steps) for one in found),
        norm=max(relative(one.norms, norms) for one in found),
        metric=max(relative(values(one), metrics, LEAST_METRIC) for one in found),
        weight=weight_difference([part for one in found for part in one.weights], expected.weights),
        seconds=max(one.seconds for one in found),
    )


def values(outcome: Outcome) -> list[float]:
    """The values of all metrics, which have the same names everywhere."""
    return [evaluation[name] for evaluation in outcome.evaluations for name in sorted(evaluation)]


def relative(found: Sequence[float], expected: Sequence[float], least: float = 0.0) -> float:
    """The largest relative difference; relative to `least` where values are smaller."""
    assert len(found) == len(expected) > 0
    return max(abs(a - b) / max(abs(b), least) for a, b in zip(found, expected, strict=True))


def weight_difference(parts: Iterable[Part], expected: Iterable[Part]) -> float:
    """The largest difference of any number of any weight.

    Raises:
        AssertionError: `parts` are not, all together, the weights that are expected.
    """
    wholes = {part.name: part.values for part in expected}
    missing = {name: np.ones(values.shape, bool) for name, values in wholes.items()}
    largest = 0.0
    for part in parts:
        assert part.shape == wholes[part.name].shape, part.name
        missing[part.name][part.region] = False
        if part.values.size:
            largest = max(largest, float(np.abs(part.values - wholes[part.name][part.region]).max()))
    lacking = [name for name, lacks in missing.items() if lacks.any()]
    assert not lacking, f"nobody has all of {lacking}"
    return largest
