"""Every program on the pages is run as it stands, or listed with the reason why not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.examples import (
    ELSEWHERE,
    NOT_RUN,
    PAGES,
    QUICKSTART,
    REPOSITORY,
    START,
    Block,
    blocks,
    entry,
    environment_in,
    is_run,
    lay_out,
    run_blocks,
)
from tests.service import Service, running_service

ROOTS = "regatta tiny-model"
"""The beginning of the quickstart's block that fills the roots, without which the service does not start."""
OPEN = ("queued", "starting", "running", "stopping")

ALL_PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])
ALL = [block for page in ALL_PAGES for block in blocks(str(page.relative_to(REPOSITORY)))]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's home, with the roots as the quickstart fills them."""
    home = tmp_path_factory.mktemp("home")
    (block,) = [block for block in blocks(QUICKSTART) if block.code.startswith(ROOTS)]
    (home / "cli").symlink_to(REPOSITORY / "cli")
    run_blocks([block], home, environment_in(home) | {"REGATTA_URL": "http://127.0.0.1:9"})
    return home


@pytest.fixture(scope="module")
def service(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service, started as the quickstart says, but on a free port."""
    assert START in [block.code.strip() for block in blocks(QUICKSTART)]
    started = running_service(
        tmp_path_factory.mktemp("service"),
        home / "models",
        data_root=home / "data",
        devices="cpu:2",
        REGATTA_HOST_NAME="rack-1",
        REGATTA_WEBHOOK_ALLOWED_NETWORKS="127.0.0.0/8",
        OMP_NUM_THREADS="1",
    )
    with started as up:
        yield up


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_the_page_run(page: str, service: Service, home: Path) -> None:
    folder = home / f"page-{Path(page).stem}"
    lay_out(folder, home)
    environment = environment_in(home) | {
        "REGATTA_URL": str(service.client.base_url).rstrip("/"),
        "REGATTA_DATA_DIR": str(service.data_dir),
    }
    before = (START, ROOTS)
    chosen = [block for block in blocks(page) if is_run(block) and not block.code.startswith(before)]
    try:
        run_blocks(chosen, folder, environment)
    finally:
        for job in service.pages("/jobs", view="summary"):
            if job["status"] in OPEN:
                service.client.post(f"/jobs/{job['id']}/cancel")


@pytest.mark.parametrize("block", ALL, ids=str)
def test_every_program_is_run_or_its_reason_is_told(block: Block) -> None:
    told = [table for table in (ELSEWHERE, NOT_RUN) if entry(table, block)]
    assert len(told) + is_run(block) == 1, f"{block} is neither run nor listed in tests/docs/examples.py"


def test_what_is_listed_is_there() -> None:
    for page, start in [*ELSEWHERE, *NOT_RUN]:
        assert any((block.page, block.code[: len(start)]) == (page, start) for block in ALL), (page, start)
    assert {test for test in ELSEWHERE.values() if not (REPOSITORY / test).is_file()} == set()
