"""Models that a fine-tuning job can start from."""

from fastapi import APIRouter

from api.openai_face.jobs import trained_models
from api.openai_face.schemas import Model, Models
from api.principal import Principal, PrincipalDep
from api.problems import not_found
from api.service import Service, ServiceDep
from trainer.config.known_models import KNOWN_MODELS

router = APIRouter(prefix="/v1/models", tags=["openai"], include_in_schema=False)


@router.get("")
def list_all(service: ServiceDep, principal: PrincipalDep) -> Models:
    """The models of the built-in table, and those that jobs have made."""
    return Models(data=_models(service, principal))


@router.get("/{model:path}")
def show(service: ServiceDep, principal: PrincipalDep, model: str) -> Model:
    """One of them."""
    for known in _models(service, principal):
        if known.id == model:
            return known
    raise not_found("model", model, "/v1/models")


def _models(service: Service, principal: Principal) -> list[Model]:
    # when they were published is not known here
    published = [Model(id=name, created=0, owned_by=name.partition("/")[0]) for name in KNOWN_MODELS]
    return [*trained_models(service, principal), *published]
