"""With thousands of jobs, lines and numbers the pages answer at once (`make bench-browser`)."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.crowd import LINES, long_job, many_jobs, measure
from tests.browser.served import Served

pytestmark = pytest.mark.browser_speed

MOST_MS = 200


@pytest.mark.timeout(600)
def test_the_pages_answer_within_a_fifth_of_a_second(page: Page, service: Served) -> None:
    many_jobs(service)
    job = long_job(service)
    found = measure(page, service, job)
    assert {name: took for name, took in found.items() if took > MOST_MS} == {}


def test_all_lines_of_a_long_log_are_there_when_they_are_wanted(page: Page, service: Served) -> None:
    job = long_job(service, points=1)
    page.goto(f"{service.url}/#/jobs/{job.id}?tab=logs")
    page.get_by_role("button", name="Load earlier lines").click()
    expect(page.locator(".log-tools [role=status]")).to_have_text(f"{LINES:,} lines")
