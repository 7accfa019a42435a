"""How often and after which pause a failed attempt is repeated."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """How patient the service is.

    Attributes:
        fault_limit: so many faults of the infrastructure in a row, without a new checkpoint, fail a job.
        backoff_s: the pause after a first setback; each further one in a row doubles it.
        longest_backoff_s: the pause never grows beyond.
    """

    fault_limit: int = 3
    backoff_s: float = 5.0
    longest_backoff_s: float = 600.0

    def pause_s(self, setbacks: int) -> float:
        """How long a job rests after so many setbacks in a row: a random part of it is left out, so that jobs
        which failed together do not come back together."""
        pause = min(self.backoff_s * 2.0 ** min(setbacks - 1, 32), self.longest_backoff_s)
        return pause * random.uniform(0.8, 1.0)  # noqa: S311 - no secret


DEFAULT_POLICY = RetryPolicy()
