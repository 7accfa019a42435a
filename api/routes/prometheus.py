"""Numbers for Prometheus."""

from fastapi import APIRouter, Request, Response

from api.principal import ADMIN_ONLY
from api.telemetry.registry import MEDIA_TYPE, Telemetry

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}},
    openapi_extra=ADMIN_ONLY,
)
def scrape(request: Request) -> Response:
    """The queue, hosts, jobs, requests and streams as numbers for Prometheus."""
    telemetry: Telemetry = request.app.state.telemetry
    return Response(telemetry.exposition(), headers={"Content-Type": MEDIA_TYPE})
