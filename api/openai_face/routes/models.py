"""Models that a fine-tuning job can start from."""

from fastapi import APIRouter

from api.openai_face.errors import refusals
from api.openai_face.jobs import trained_models
from api.openai_face.schemas import ModelList, ModelObject
from api.principal import Principal, PrincipalDep
from api.problems import not_found
from api.service import Service, ServiceDep
from trainer.config.known_models import KNOWN_MODELS

router = APIRouter(prefix="/v1/models", tags=["openai"])


@router.get("")
def list_all(service: ServiceDep, principal: PrincipalDep) -> ModelList:
    """The models of the built-in table, and those that jobs have made."""
    return ModelList(data=_models(service, principal))


@router.get("/{model:path}", responses=refusals(404))
def show(service: ServiceDep, principal: PrincipalDep, model: str) -> ModelObject:
    """One of them."""
    for known in _models(service, principal):
        if known.id == model:
            return known
    raise not_found("model", model, "/v1/models")


def _models(service: Service, principal: Principal) -> list[ModelObject]:
    # when they were published is not known here
    published = [ModelObject(id=name, created=0, owned_by=name.partition("/")[0]) for name in KNOWN_MODELS]
    return [*trained_models(service, principal), *published]
