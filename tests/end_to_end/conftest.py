"""A whole service, started as a user starts it, and a tiny model and data set for its jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Service, build_tiny_gemma, running_service, write_sft_data


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one folder that the service may read models and data from."""
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def model(root: Path) -> Path:
    """A small random Gemma directory."""
    return build_tiny_gemma(root / "tiny-gemma")


@pytest.fixture(scope="module")
def data(root: Path) -> Path:
    """A data set directory with train.json and dev.json."""
    return write_sft_data(root / "data")


@pytest.fixture(scope="module")
def service(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`regatta up` on a free port; ended with SIGTERM afterwards."""
    with running_service(tmp_path_factory.mktemp("service"), root) as up:
        yield up
