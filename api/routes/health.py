"""Whether the process lives, and whether all that it needs is there."""

import asyncio
import logging
from collections.abc import Callable

import redis
from fastapi import APIRouter

from api.problems import ApiError
from api.schemas.health import Check, Health, Readiness
from api.schemas.problems import answers
from api.service import Service, ServiceDep
from store import migrate
from store.database import database_now
from store.errors import StoreError

router = APIRouter(tags=["health"])
logger = logging.getLogger(__name__)

CHECK_SECONDS = 3.0


@router.get("/healthz")
async def live() -> Health:
    """The process answers; nothing else is looked at."""
    return Health()


@router.get("/readyz", responses=answers(503))
async def ready(service: ServiceDep) -> Readiness:
    """The database, its migrations, the broker and the artifacts, each by name; 503 when one is away."""
    results = await asyncio.gather(*(_check(name, check, service) for name, check in CHECKS.items()))
    named = dict(zip(CHECKS, results, strict=True))
    away = [f"{name}: {check.detail}" for name, check in named.items() if not check.ok]
    if away:
        members = {name: check.model_dump() for name, check in named.items()}
        raise ApiError("unavailable", "; ".join(away), headers={"Retry-After": "5"}, checks=members)
    return Readiness(checks=named)


async def _check(name: str, check: Callable[[Service], None], service: Service) -> Check:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await asyncio.to_thread(check, service)
    except StoreError as error:
        return Check(ok=False, detail=str(error))
    except Exception as error:
        logger.warning("%s is not ready: %s", name, error)
        return Check(ok=False, detail=f"does not answer ({type(error).__name__}); the log has the rest")
    return Check(ok=True)


def _database(service: Service) -> None:
    with service.database.reading() as session:
        database_now(session)


def _migrations(service: Service) -> None:
    migrate.check(service.database)


def _broker(service: Service) -> None:
    with redis.Redis.from_url(
        service.settings.broker_url, socket_timeout=2, socket_connect_timeout=2
    ) as client:
        client.ping()


def _artifacts(service: Service) -> None:
    service.artifacts.check()


CHECKS: dict[str, Callable[[Service], None]] = {
    "database": _database,
    "migrations": _migrations,
    "broker": _broker,
    "artifacts": _artifacts,
}
