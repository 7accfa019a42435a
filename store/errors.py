"""What a request to the store can do wrong."""


class StoreError(Exception):
    """Base of all errors a caller can answer; `str(error)` is one sentence a user can act on."""


class NotFound(StoreError):  # noqa: N818
    """The named thing does not exist (any more)."""


class Conflict(StoreError):  # noqa: N818
    """The thing exists, but its present state does not allow what was asked."""


class RetryImpossible(Conflict):
    """A job of this state can be retried, but not this one: what it needs will never come."""


class QuotaExceeded(StoreError):  # noqa: N818
    """A project may have no more of what was asked for."""


class IdempotencyConflict(Conflict):
    """An Idempotency-Key came again with another request body."""


class InvalidCursor(StoreError):  # noqa: N818
    """A page cursor that no earlier answer has given."""


class OffsetConflict(StoreError):  # noqa: N818
    """A report does not start where the last accepted one ended; `expected` is where it has to start."""

    def __init__(self, expected: int, start: int) -> None:
        super().__init__(
            f"the report starts at byte {start}, expected {expected}: send the events from there"
        )
        self.expected = expected


class ArtifactError(StoreError):
    """An artifact key, directory or location that cannot be used as given."""


class ArtifactsUnavailable(StoreError, OSError):  # noqa: N818
    """The server of the artifacts did not answer, or not as it should; it may do so later."""
