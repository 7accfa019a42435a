"""A typed client of a Regatta server: `Regatta`, and `AsyncRegatta` for asyncio.

It knows the server by its HTTP API alone.
"""

from regatta_client.aio import AsyncRegatta
from regatta_client.errors import (
    ApiError,
    ConflictError,
    DamagedFileError,
    ForbiddenError,
    InvalidError,
    JobDidNotSucceedError,
    NotFoundError,
    RegattaError,
    ServerAwayError,
    ServerFailedError,
    TookTooLongError,
    TooManyRequestsError,
    UnauthenticatedError,
)
from regatta_client.sync import Regatta

__all__ = [
    "ApiError",
    "AsyncRegatta",
    "ConflictError",
    "DamagedFileError",
    "ForbiddenError",
    "InvalidError",
    "JobDidNotSucceedError",
    "NotFoundError",
    "Regatta",
    "RegattaError",
    "ServerAwayError",
    "ServerFailedError",
    "TooManyRequestsError",
    "TookTooLongError",
    "UnauthenticatedError",
]
