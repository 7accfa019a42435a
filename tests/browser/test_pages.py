"""Every page as axe sees it, in light and in dark."""

import pytest
from playwright.sync_api import Page

from store.reasons import Reason
from store.states import Status
from tests.browser.accessibility import violations
from tests.browser.served import Served

CONFIG_WITH_A_MISTAKE = "/new?task=finetune&dataset=nowhere"


@pytest.fixture(scope="module")
def places(service: Served) -> dict[str, str]:
    """Pages with something on each, and what shows that it is there."""
    running, failed = service.job(name="running", labels={"team": "search"}), service.job(name="failed")
    for job in (running, failed):
        service.start(job)
        job.step(1, 2, 3)
        job.log(20)
    failed.finish(Status.failed, Reason.out_of_memory)
    dataset = service.upload("axe", '{"src": "a question", "tgt": "an answer"}\n')
    return {
        "/jobs": "table.jobs tbody tr",
        f"/jobs/{running.id}": ".chart",
        f"/jobs/{running.id}?tab=logs": ".line",
        f"/jobs/{failed.id}?tab=events": "tbody tr",
        f"/jobs/{failed.id}?tab=config": "#tab-panel table, #tab-panel dl, #tab-panel pre",
        CONFIG_WITH_A_MISTAKE: ".report .problem",
        "/datasets": "table.datasets tbody tr",
        f"/datasets/{dataset['id']}": ".one",
        "/hosts": ".host",
        f"/compare?ids={running.id},{failed.id}": ".chart",
    }


def test_no_page_has_a_grave_violation_in_light_or_dark(
    page: Page, service: Served, places: dict[str, str]
) -> None:
    found = []
    for place, sign in places.items():
        page.goto(f"{service.url}/#{place}")
        page.locator(sign).first.wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found += [f"{place} in {scheme}: {violation}" for violation in violations(page)]
    assert not found, "\n".join(found)
