"""The pictures of the documentation, written to docs/images by `make screenshots` alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from store.broker import ensure_broker
from store.migrate import upgrade
from store.reasons import Reason
from store.states import Status
from tests.browser import scene
from tests.browser.served import Served, served, settings_in

pytestmark = pytest.mark.screenshots

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LARGEST = 150_000


@pytest.fixture
def harbour(folder: Path, tmp_path: Path) -> Iterator[Served]:
    """A service of its own with the life of `scene` in it."""
    (tmp_path / "models").symlink_to(folder / "models")
    (tmp_path / "data").symlink_to(folder / "data")
    silent = {"heartbeat_s": 3600.0}  # nobody beats for its hosts
    settings = settings_in(tmp_path, tmp_path / "regatta.db").model_copy(update=silent)
    upgrade(settings.database_url)
    broker = ensure_broker(settings.data_dir)
    try:
        with served(settings) as running:
            yield running
    finally:
        broker.stop()


def test_the_pictures(open_page: Callable[..., Page], harbour: Served) -> None:
    scene.hosts(harbour)
    dataset = harbour.upload("support-2026-11", scene.records())
    finished = [
        scene.run(
            harbour,
            "quay-1",
            (place,),
            name=f"support-lr-{rate:g}",
            labels={"team": "search"},
            config={"learning_rate": rate, "max_steps": 400, "lora": True, "lora_rank": 8 << place},
        )
        for place, rate in enumerate((1e-4, 3e-4))
    ]
    for seed, job in enumerate(finished):
        scene.curve(job, 400, 400, floor=1.1 - seed / 5, seed=seed)
        job.finish()
    failed = scene.run(harbour, "quay-1", (2,), name="support-full", config={"max_steps": 400})
    scene.curve(failed, 12, 400, floor=1.4, seed=7)
    failed.finish(Status.failed, Reason.out_of_memory)
    running = scene.run(
        harbour,
        "quay-1",
        (3, 4),
        name="support-lr-1e-3",
        labels={"team": "search", "sweep": "rank"},
        config={"learning_rate": 1e-3, "max_steps": 400, "lora": True, "lora_rank": 32},
        resources={"devices_per_node": 2},
    )
    scene.curve(running, 236, 400, floor=1.3, seed=3)
    harbour.submit(name="support-dpo-later", priority=5, labels={"team": "search"})

    page = open_page(harbour.url)
    take(page, harbour, "jobs", "/jobs", "table.jobs tbody tr")
    take(page, harbour, "job", f"/jobs/{running.id}", ".readout b")
    compared = ",".join(job.id for job in (*finished, running))
    take(page, harbour, "compare", f"/compare?ids={compared}", ".readout b")
    take(page, harbour, "hosts", "/hosts", ".host .busy")
    page.goto(f"{harbour.url}/#/datasets/{dataset['id']}")
    page.get_by_label("Model").fill("tiny-gemma")
    page.get_by_label("Longest").fill("64")
    page.get_by_role("button", name="Show tokens").click()
    page.locator(".tokens").first.wait_for()
    page.locator("#tokens-title").scroll_into_view_if_needed()
    page.evaluate("scrollTo(0, document.querySelector('[aria-labelledby=split-title]').offsetTop - 16)")
    save(page, "dataset")


def test_the_picture_of_a_new_job(open_page: Callable[..., Page], harbour: Served) -> None:
    scene.hosts(harbour)
    dataset = harbour.upload("support-2026-11", scene.records())
    config = {"dataset_name_or_path": dataset["reference"], "max_steps": 400, "lora": True, "do_eval": False}
    packed = {"zero_padding": True, "per_device_train_batch_size": 64}
    job = harbour.submit(name="support-lr-1e-3", config=config | packed)
    page = open_page(f"{harbour.url}/#/new?clone={job['id']}")
    page.locator("#argument-learning_rate").fill("0.001")
    page.locator(".memory-bar").wait_for(timeout=90_000)
    save(page, "new-job")


def take(page: Page, service: Served, name: str, place: str, sign: str) -> None:
    """A picture of a page once something is there."""
    page.goto(f"{service.url}/#{place}")
    page.locator(sign).first.wait_for()
    page.wait_for_timeout(1500)
    save(page, name)


def save(page: Page, name: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    file = IMAGES / f"{name}.png"
    page.mouse.move(0, 0)
    page.screenshot(path=file, animations="disabled", caret="hide")
    assert file.stat().st_size < LARGEST, f"{file.name} is too large for the repository"
