"""Jobs beside each other in the browser."""

from playwright.sync_api import Page, expect

from tests.browser.served import Served


def test_chosen_jobs_are_laid_over_each_other(page: Page, service: Served) -> None:
    jobs = [service.job(name=f"rate {rate}", config={"learning_rate": rate}) for rate in (0.001, 0.002)]
    for job, steps in zip(jobs, (3, 5), strict=True):
        service.start(job)
        job.step(*range(1, steps + 1))
    page.goto(f"{service.url}/#/jobs")
    for rate in (0.001, 0.002):
        page.get_by_label(f"Choose rate {rate}").check()
    page.get_by_role("button", name="Compare 2").click()
    readout = page.locator(".chart", has_text="Loss").first.locator(".readout")
    expect(readout).to_contain_text("rate 0.001 3.7 at 3")
    expect(readout).to_contain_text("rate 0.002 3.5 at 5")
    jobs[0].step(4)
    expect(readout).to_contain_text("rate 0.001 3.6 at 4")
    expect(page.locator(".differences tbody tr")).to_have_text(["learning_rate0.0010.002"])
    expect(page.locator(".compared tbody tr")).to_have_count(2)
