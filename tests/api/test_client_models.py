"""The client's types are those of the API."""

from api.client_models import TARGET, current


def test_the_clients_types_are_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == current(), "run: python -m api.client_models"
