"""A job from its start to its end, as somebody watches it in the browser."""

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.served import Served


def test_a_job_is_watched_searched_downloaded_and_cancelled(
    page: Page, service: Served, tmp_path: Path
) -> None:
    page.goto(f"{service.url}/#/new")
    for name, text in {
        "model_name_or_path": "tiny-gemma",
        "dataset_name_or_path": "sft",
        "output_dir": "out",
        "max_steps": "9",
    }.items():
        page.locator(f"#argument-{name}").fill(text)
    page.get_by_label("Name", exact=True).fill("watched")
    page.get_by_role("button", name="Submit job").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("watched")
    job = service.hands(page.url.split("/")[-1].split("?")[0])
    status = page.locator(".state .status")
    expect(status).to_have_text("queued")

    service.start(job)
    job.say({"t": 1.0, "type": "progress", "step": 0, "total_steps": 9, "epoch": 0.0})
    expect(status).to_have_text("running")
    job.step(1, 2, 3)
    loss = page.locator(".chart", has_text="Loss").first.locator(".readout")
    expect(loss).to_contain_text("at 3")
    job.step(4, 5, 6)
    expect(loss).to_contain_text("at 6")
    expect(loss).to_contain_text("3.4")

    page.get_by_role("tab", name="Log").click()
    job.log(30)
    found = page.locator(".log-tools [role=status]")
    expect(found).to_have_text("30 lines")
    page.locator("#log-search").fill("1-29")
    expect(found).to_have_text("1 of 30 lines")
    expect(page.locator(".logs mark")).to_have_text("1-29")
    job.log(5)
    expect(found).to_have_text("1 of 35 lines")

    made = tmp_path / "made"
    made.mkdir()
    (made / "config.json").write_text('{"model_type": "gemma"}')
    job.publish("checkpoint-6", made, step=6, metrics={"eval_loss": 1.25})
    page.get_by_role("tab", name="Checkpoints").click()
    page.get_by_text("1 file").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="config.json").click()
    assert Path(download.value.path()).read_text() == '{"model_type": "gemma"}'

    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(status).to_have_text("stopping")
    assert service.client.get(job.path).json()["status"] == "stopping"
