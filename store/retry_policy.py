"""How often and after which pause a failed attempt is repeated."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class ExclusionPolicy:
    """When a host is given no more jobs.

    Attributes:
        limit: so many attempts that failed there, with no success in between, exclude it.
        window_s: they count for so long.
        duration_s: so long it is excluded; 0: until an operator says otherwise.
    """

    limit: int = 3
    window_s: float = 3600.0
    duration_s: float = 3600.0


@dataclass(frozen=True)
class RetryPolicy:
    """How patient the service is.

    Attributes:
        fault_limit: so many faults of the infrastructure in a row, without a new checkpoint, fail a job.
        backoff_s: the pause after a first setback; each further one in a row doubles it.
        longest_backoff_s: the pause never grows beyond.
        exclusion: when the host of failed attempts is given no more jobs.
    """

    fault_limit: int = 3
    backoff_s: float = 5.0
    longest_backoff_s: float = 600.0
    exclusion: ExclusionPolicy = ExclusionPolicy()

    def pause_s(self, setbacks: int) -> float:
        """How long a job rests after so many setbacks in a row: a random part of it is left out, so that jobs
        which failed together do not come back together."""
        pause = min(self.backoff_s * 2.0 ** min(setbacks - 1, 32), self.longest_backoff_s)
        return pause * random.uniform(0.8, 1.0)  # noqa: S311 - no secret


DEFAULT_POLICY = RetryPolicy()
