"""A job is written in the browser: from the keyboard, with problems beside fields, from other jobs."""

import json
import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.served import Served

CONFIG = {
    "model_name_or_path": "tiny-gemma",
    "dataset_name_or_path": "sft",
    "output_dir": "out",
    "max_steps": "20",
}
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


def argument(page: Page, name: str) -> Locator:
    return page.locator(f"#argument-{name}")


def fill_in(page: Page) -> None:
    """Write a small valid config into the form."""
    for name, text in CONFIG.items():
        argument(page, name).fill(text)


def tab_to(page: Page, selector: str, most: int = 80) -> None:
    """Press Tab until the focus is on an element."""
    for _ in range(most):
        if page.evaluate("selector => document.activeElement?.matches(selector) ?? false", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the focus never came to {selector}")


def test_a_job_is_started_by_keyboard_alone(page: Page, service: Served) -> None:
    page.wait_for_selector("main h1")
    tab_to(page, "a[href='#/new']")
    page.keyboard.press("Enter")
    argument(page, "max_steps").wait_for()
    tab_to(page, "#member-name")
    page.keyboard.type("by keyboard")
    for name, text in CONFIG.items():
        tab_to(page, f"#argument-{name}")
        page.keyboard.type(text)
    tab_to(page, "button[type=submit]", most=400)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("by keyboard")
    (job,) = service.client.get("/jobs", params={"name": "by keyboard"}).json()["items"]
    assert f"#/jobs/{job['id']}" in page.url
    assert job["config"] == CONFIG | {"max_steps": 20}


def test_what_is_wrong_and_doubtful_stands_beside_the_argument(page: Page, service: Served) -> None:
    page.goto(f"{service.url}/#/new")
    verdict = page.locator(".verdict")
    expect(verdict).to_have_text("3 problems")
    fill_in(page)
    expect(verdict).to_have_text("It can be submitted.")
    expect(page.locator(".memory-bar")).to_have_accessible_name(
        re.compile(r"Memory: \d+ MiB of 8 GiB \(pier-1\)")
    )
    widths = page.locator(".memory-part").evaluate_all(
        "parts => parts.map(part => parseFloat(part.style.width))"
    )
    assert 0 < sum(widths) < 100
    assert "save_steps-warning" in str(argument(page, "save_steps").get_attribute("aria-describedby"))
    expect(page.locator("#argument-save_steps-warning")).to_contain_text("no checkpoint before the end")

    argument(page, "learning_rate").fill("fast")
    expect(verdict).to_have_text("1 problem")
    expect(argument(page, "learning_rate")).to_have_attribute("aria-invalid", "true")
    assert "learning_rate-problem" in str(argument(page, "learning_rate").get_attribute("aria-describedby"))
    expect(page.locator("#argument-learning_rate-problem")).to_contain_text('"fast"')
    page.get_by_role("button", name="Submit job").click()
    expect(argument(page, "learning_rate")).to_be_focused()
    page.get_by_role("button", name="Set learning_rate back").click()
    expect(verdict).to_have_text("It can be submitted.")

    page.get_by_role("button", name="Show records").click()
    expect(page.locator(".tokens").first).to_contain_text("<bos>Which boat lies at berth 0?")
    learned = page.locator(".tokens").first.locator(".learned").all_inner_texts()
    assert "".join(learned) == "Berth 0 holds the boat number 0.<eos>"


def test_arguments_are_found_and_what_differs_from_the_preset_is_told(page: Page, service: Served) -> None:
    page.goto(f"{service.url}/#/new?preset=gemma/dpo")
    expect(page.get_by_label("Task", exact=True)).to_have_value("dpo")
    expect(argument(page, "model_name_or_path")).to_have_value("google/gemma-2b")
    page.get_by_label("Find an argument").fill("label smoothing")
    expect(page.locator(".argument:visible code")).to_have_text(["label_smoothing"])
    argument(page, "label_smoothing").fill("0.1")
    page.get_by_label("Find an argument").fill("")
    argument(page, "model_name_or_path").fill("tiny-gemma")
    page.get_by_label("Only what differs from the start").check()
    expect(page.locator(".argument:visible code")).to_have_text(["model_name_or_path", "label_smoothing"])
    page.get_by_label("Starting point", exact=True).select_option("gemma/sft")
    page.get_by_role("dialog").get_by_role("button", name="Start anew").click()
    expect(page.get_by_label("Task", exact=True)).to_have_value("finetune")
    expect(page.locator(".argument:visible")).to_have_count(0)


def test_a_job_is_written_as_json_and_with_labels(page: Page, service: Served) -> None:
    page.goto(f"{service.url}/#/new")
    page.get_by_role("button", name="JSON").click()
    text = page.get_by_label("Arguments (config)")
    text.fill('{"model_name_or_path": ')
    expect(page.locator("#json-problem")).to_contain_text("Not JSON yet")
    text.fill(json.dumps(CONFIG | {"max_steps": 7, "learing_rate": 1}))
    expect(page.locator(".report .problem")).to_contain_text("Did you mean learning_rate?")
    text.fill(json.dumps(CONFIG | {"max_steps": 7}))
    page.get_by_label("Name", exact=True).fill(HOSTILE)
    page.get_by_text("Devices, priority, labels and limits").click()
    page.get_by_label("Priority", exact=True).fill("high")
    expect(page.locator("#member-priority-problem")).to_contain_text("high")
    page.get_by_label("Priority", exact=True).fill("5")
    page.get_by_label("Labels", exact=True).fill("team: search\nrun: 3")
    page.get_by_role("button", name="Submit job").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    job = service.client.get(f"/jobs/{page.url.split('/')[-1].split('?')[0]}").json()
    assert (job["config"]["max_steps"], job["priority"]) == (7, 5)
    assert job["labels"] == {"team": "search", "run": "3"}

    page.get_by_role("button", name="Clone").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Copy of {HOSTILE}")
    expect(page.get_by_label("Name", exact=True)).to_have_value(HOSTILE)
    expect(argument(page, "max_steps")).to_have_value("7")
    page.get_by_label("Starting point", exact=True).select_option("")
    expect(argument(page, "max_steps")).to_have_value("")
    page.get_by_label("Starting point", exact=True).select_option("the other job")
    expect(argument(page, "max_steps")).to_have_value("7")
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
    assert page.locator("main img").count() == 0
    assert "taken" not in page.title()
