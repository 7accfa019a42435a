"""The application: routes, error handling and what surrounds every request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline

from api import handlers, openapi
from api.authentication import Authentication
from api.guard import Guard
from api.keyring import Keyring
from api.limits import RateLimit, StreamLimit
from api.openai_face.errors import OpenAIErrors
from api.openai_face.routes import files as openai_files
from api.openai_face.routes import jobs as openai_jobs
from api.openai_face.routes import models as openai_models
from api.principal import admit
from api.query import refuse_unknown_names
from api.routes import (
    audit,
    catalog,
    checkpoints,
    datasets,
    events,
    health,
    hosts,
    jobs,
    keys,
    logs,
    metrics,
    pipelines,
    projects,
    prometheus,
    results,
    secrets,
    webhooks,
)
from api.service import Service
from api.telemetry.registry import Telemetry
from api.telemetry.requests import Observed
from api.web import pages
from store.settings import Settings, get_settings

DESCRIPTION = "Runs LLM fine-tuning jobs on PaddlePaddle: POST a task and its config, then poll or follow."


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application over the store that `settings` (default: the environment's) name."""
    settings = settings or get_settings()
    app = FastAPIOffline(
        docs_url="/docs",
        redoc_url=None,
        static_url="/docs/static",
        title="Regatta",
        version=version("regatta"),
        description=DESCRIPTION,
        lifespan=_lifespan,
        dependencies=[Depends(admit), Depends(refuse_unknown_names)],
        redirect_slashes=False,
    )
    service = app.state.service = Service.open(settings)
    keyring = app.state.keyring = Keyring(service.database)
    for noun in (
        jobs,
        events,
        audit,
        metrics,
        logs,
        checkpoints,
        results,
        datasets,
        catalog,
        hosts,
        keys,
        pipelines,
        projects,
        secrets,
        webhooks,
        health,
        prometheus,
        openai_files,
        openai_jobs,
        openai_models,
        pages,
    ):
        app.include_router(noun.router)
    app.openapi = partial(openapi.describe, app)
    handlers.install(app)
    app.state.stream_limit = StreamLimit(settings.max_streams_per_client)
    app.add_middleware(RateLimit, settings=settings)
    app.add_middleware(Authentication, keyring=keyring, required=settings.api_keys_required)
    app.add_middleware(handlers.Failures)
    app.add_middleware(Guard, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(OpenAIErrors)
    telemetry = app.state.telemetry = Telemetry(service)
    app.add_middleware(Observed, metrics=telemetry.http, log_requests=settings.log_format == "json")
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    async with service.hints:
        yield
    service.close()
