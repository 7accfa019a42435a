"""Why a job has the status it has: one table of all reasons, whose fault each is, and what can be done."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a job has the status it has."""

    submitted = "submitted"
    retried = "retried"
    placed = "placed"
    started = "started"
    completed = "completed"
    cancel_requested = "cancel_requested"
    user_cancelled = "user_cancelled"
    bad_config = "bad_config"
    bad_data = "bad_data"
    out_of_memory = "out_of_memory"
    nan_loss = "nan_loss"
    timed_out = "timed_out"
    trainer_crashed = "trainer_crashed"
    trainer_killed = "trainer_killed"
    artifacts_unavailable = "artifacts_unavailable"
    host_failed = "host_failed"
    host_lost = "host_lost"
    device_error = "device_error"
    start_timeout = "start_timeout"
    host_stopping = "host_stopping"
    preempted = "preempted"
    dependency_failed = "dependency_failed"


class Fault(StrEnum):
    """Who can do something about it."""

    user = "user"
    data = "data"
    infrastructure = "infrastructure"
    nobody = "nobody"


class Retry(StrEnum):
    """Whether the service itself repeats an attempt that has ended for a reason."""

    never = "never"
    """The same would happen again."""
    counted = "counted"
    """As often as the job's `max_retries` says."""
    bounded = "bounded"
    """At no charge, but so many times in a row without a new checkpoint fail the job (`fault_limit`)."""
    spaced = "spaced"
    """Always, at no charge, after a rest."""
    free = "free"
    """Always, at no charge, at once."""


@dataclass(frozen=True)
class Explanation:
    """A row of the table.

    Attributes:
        fault: who can do something about it; None where nothing went wrong.
        retry: what the service does by itself.
        retry_helps: whether the same job may succeed when it is tried again as it is.
        meaning: what has happened, a sentence.
        remedy: what to do about it; empty when there is nothing to do.
    """

    meaning: str
    fault: Fault | None = None
    retry: Retry = Retry.never
    retry_helps: bool = False
    remedy: str = ""


REASONS: Mapping[Reason, Explanation] = {
    Reason.submitted: Explanation("The job was accepted and waits for devices."),
    Reason.retried: Explanation("Somebody asked to run the job again; it goes on from its last checkpoint."),
    Reason.placed: Explanation("The job has been given devices and its hosts are starting it."),
    Reason.started: Explanation("The trainer runs."),
    Reason.completed: Explanation("The trainer has finished and its result is kept."),
    Reason.cancel_requested: Explanation(
        "Somebody asked to stop the job; the trainer saves a checkpoint and ends."
    ),
    Reason.user_cancelled: Explanation(
        "The job was stopped because somebody asked for it.",
        retry_helps=True,
        remedy="Retry the job to go on from its last checkpoint.",
    ),
    Reason.bad_config: Explanation(
        "The trainer refused the config.",
        Fault.user,
        remedy="Change what the message names and submit a new job.",
    ),
    Reason.bad_data: Explanation(
        "The trainer could not use the data.",
        Fault.data,
        remedy="Correct the file and line that the message names and submit a new job.",
    ),
    Reason.out_of_memory: Explanation(
        "A device or the host had no memory left for the job.",
        Fault.user,
        remedy="Use a smaller per_device_train_batch_size or max_length, switch recompute on, take more "
        "devices per copy of the model or a device with more memory; submit a new job.",
    ),
    Reason.nan_loss: Explanation(
        "The loss or the gradients were not finite in many steps in a row.",
        Fault.user,
        remedy="Lower learning_rate, lengthen the warm-up, set max_grad_norm, use bf16 in place of fp16, and "
        "look for broken records; submit a new job.",
    ),
    Reason.timed_out: Explanation(
        "An attempt ran longer than the job's timeout_s.",
        Fault.user,
        retry_helps=True,
        remedy="Retry the job to go on from its last checkpoint for as long again, or submit it with a "
        "longer timeout_s.",
    ),
    Reason.trainer_crashed: Explanation(
        "The trainer ended with an error that it did not expect.",
        Fault.nobody,
        Retry.counted,
        retry_helps=True,
        remedy="Read the last lines of the log. Where they name an argument or a file, change it; else retry "
        "once, and report a crash that comes again.",
    ),
    Reason.trainer_killed: Explanation(
        "Something on the host, outside the service, ended the trainer with a signal.",
        Fault.infrastructure,
        Retry.bounded,
        retry_helps=True,
        remedy="Look on the host for who sent the signal: SIGKILL is often the kernel's, when the host's "
        "memory is exhausted. Then retry.",
    ),
    Reason.artifacts_unavailable: Explanation(
        "The place where results are kept could not be reached for too long.",
        Fault.infrastructure,
        Retry.bounded,
        retry_helps=True,
        remedy="See that the artifacts (REGATTA_ARTIFACTS_URL) can be written and are not full, then retry.",
    ),
    Reason.host_failed: Explanation(
        "The host could not start the trainer.",
        Fault.infrastructure,
        Retry.bounded,
        retry_helps=True,
        remedy="Look at the host that the evidence names (disk, limits, installation), then retry.",
    ),
    Reason.host_lost: Explanation(
        "The host gave no sign of life any more.",
        Fault.infrastructure,
        Retry.bounded,
        retry_helps=True,
        remedy="Look at the host that the message names and at its network, then retry.",
    ),
    Reason.device_error: Explanation(
        "A device of the host is broken, by what the driver or the trainer says.",
        Fault.infrastructure,
        Retry.bounded,
        retry_helps=True,
        remedy="Look at the host and device that the message names (nvidia-smi, the kernel's log), then "
        "retry.",
    ),
    Reason.start_timeout: Explanation(
        "A host did not take the job in time.",
        Fault.infrastructure,
        Retry.bounded,
        retry_helps=True,
        remedy="See that the worker of the host that the message names runs and reaches the broker.",
    ),
    Reason.host_stopping: Explanation(
        "The host is drained, or the service on it was shut down; the job was stopped with a checkpoint and "
        "waits for devices.",
        Fault.nobody,
        Retry.free,
        retry_helps=True,
    ),
    Reason.preempted: Explanation(
        "A more urgent job needed the devices; the job was stopped with a checkpoint and waits for others.",
        Fault.nobody,
        Retry.spaced,
        retry_helps=True,
    ),
    Reason.dependency_failed: Explanation(
        "A job whose result this one uses has failed, was cancelled, or was deleted.",
        Fault.nobody,
        remedy="Look at the job that the message names and retry it: this one is queued again with it.",
    ),
}
"""All reasons, in the order of a job's life."""

INTERRUPTIONS = frozenset(
    reason for reason, row in REASONS.items() if row.retry in (Retry.free, Retry.spaced)
)
"""What ends an attempt without any fault of the job."""

OF_HOSTS = frozenset(
    {
        Reason.device_error,
        Reason.host_failed,
        Reason.host_lost,
        Reason.start_timeout,
        Reason.trainer_killed,
        Reason.trainer_crashed,
    }
)
"""What may be the host's doing: the job is tried on another host next, where there is one."""

FAULTS = (
    frozenset(reason for reason, row in REASONS.items() if row.fault is not None)
    - INTERRUPTIONS
    - {Reason.dependency_failed}
)
"""Why an attempt can fail."""
