"""What a job will take, and whether a host that is known has it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from api.problems import invalid
from api.resources import RESOURCES, Offer
from api.submission import Submission
from api.trainer_tools import NoAnswerError, ask, problems_in
from trainer.config import TaskConfig, read_config
from trainer.config.estimate import Counted, Estimate, SplitTokens, estimate_job
from trainer.config.estimate.doubts import doubts
from trainer.config.estimate.fit import too_large
from trainer.config.preflight import Checked
from trainer.config.problems import Problem
from trainer.config.schema import RecordsConfig
from trainer.config.topology import Topology


def with_estimate(submission: Submission, hosts: Sequence[Offer], *, count: bool) -> Submission:
    """The submission with its estimate, and with warnings that follow from it.

    Args:
        hosts: what the hosts have.
        count: whether to count the tokens of the data, which takes seconds. A job that seems too large for
            every host gets its tokens counted in any case: its texts may be short.

    Raises:
        ApiError: 422, no device that is known has the memory, and the request does not say `force`.
    """
    config = submission.config or read_config(submission.request.task, submission.local).config
    if config is None:  # a reference whose folder is not known yet
        return submission
    job = _Job(submission, config)
    largest = largest_device(hosts, submission)
    job.look(count=count)
    problem = job.too_large(largest)
    if problem is not None and not count:
        job.look(count=True)
        problem = job.too_large(largest)
    warnings = [*submission.warnings, *job.warnings()]
    if problem is not None:
        if not submission.request.force:
            hint = f"{problem.hint} To queue it all the same, set force to true."
            raise invalid([replace(problem, hint=hint)])
        warnings.append(problem)
    return replace(submission, estimate=job.estimate, warnings=tuple(warnings))


def largest_device(hosts: Iterable[Offer], submission: Submission) -> int | None:
    """The memory that each device of the job would have on the largest host; None where that is not known:
    there is no such host yet, or one does not tell.
    """
    wanted = submission.resources
    found = []
    for host in hosts:
        if host.device != wanted.device or host.devices < wanted.devices_per_node:
            continue
        if len(host.memory) < host.devices:
            return None
        found.append(sorted(host.memory, reverse=True)[wanted.devices_per_node - 1])
    return max(found, default=None)


class _Job:
    """A submission and what is found out about it."""

    def __init__(self, submission: Submission, config: TaskConfig) -> None:
        self._submission, self._config = submission, config
        resources = submission.resources
        self._topology = Topology.of(config, resources.nodes * resources.devices_per_node)
        self.estimate = Estimate()

    def look(self, *, count: bool) -> None:
        """Make the estimate."""
        counted, why = self._counted() if count else (None, None)
        checked = Checked(self._config, statistics=self._submission.statistics)
        device = self._submission.resources.device
        self.estimate = estimate_job(checked, self._topology, device, counted, why)

    def too_large(self, largest: int | None) -> Problem | None:
        """The problem that no known device has the memory."""
        if largest is None:
            return None
        device = self._submission.resources.device
        problem = too_large(self.estimate, self._config, self._topology, device, largest)
        return problem and replace(problem, loc=RESOURCES)

    def warnings(self) -> Iterable[Problem]:
        """What is legal but surely unwanted."""
        for problem in doubts(self._config, self.estimate):
            yield replace(problem, loc=("body", "config", *problem.loc))

    def _counted(self) -> tuple[Counted | None, str | None]:
        """The tokens of the data, or the reason why they are not known."""
        if not isinstance(self._config, RecordsConfig):
            return None, None
        try:
            answer = ask("trainer.token_counts", self._config.task, self._submission.local)
        except NoAnswerError as why:
            return None, f"data: the number of tokens {why}"
        if problems := problems_in(answer):
            return None, f"data: the tokens cannot be counted: {problems[0]}"
        return {name: SplitTokens.from_dict(split) for name, split in answer.items()}, None
