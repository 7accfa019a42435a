"""OpenAI's own client, unmodified, on a server of ours."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.api.keyed import Keyed


def client_of(keyed: Keyed, project: str = "default") -> OpenAI:
    """A client with a key of the project; to be closed by the caller."""
    return OpenAI(api_key=keyed.key(project), base_url=f"{keyed.url}/v1", max_retries=0)


@pytest.fixture
def face(keyed: Keyed) -> Iterator[OpenAI]:
    """A client of the test's server, which wants keys."""
    with client_of(keyed) as client:
        yield client
