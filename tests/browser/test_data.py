"""Data sets in the browser: what is wrong with a file, what is in it, and what a model makes of it."""

import gzip
import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.served import Served

ROWS = [{"src": f"Is berth {n} free?", "tgt": "Yes. " * (1 + n % 9)} for n in range(40)]


def test_a_data_set_is_uploaded_shown_counted_and_deleted(
    page: Page, service: Served, tmp_path: Path
) -> None:
    good = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "bad.json").write_text(good + '{"src": 3}\n')
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(good.encode()))
    (tmp_path / "train.json").write_text(good.replace("berth", "mooring"))
    page.goto(f"{service.url}/#/datasets")
    page.get_by_label("Name").fill("<b>moorings</b>")
    page.get_by_label("Training records").set_input_files(tmp_path / "bad.json")
    page.get_by_role("button", name="Upload").click()
    expect(page.locator(".upload .problem")).to_contain_text("train.bad.json.41")

    page.get_by_label("Training records").set_input_files(tmp_path / "train.json")
    page.get_by_label("Records to evaluate").set_input_files(tmp_path / "dev.json.gz")
    page.get_by_label("Pack by gzip").check()
    page.get_by_role("button", name="Check only").click()
    expect(page.locator(".upload .good")).to_have_text("It can be stored: sft, 40 train, 40 dev.")
    page.get_by_role("button", name="Upload").click()
    expect(page.locator(".upload .good")).to_contain_text("Stored: <b>moorings</b>")
    page.locator("table.datasets").get_by_role("link", name="<b>moorings</b>", exact=True).click()

    expect(page.locator("section", has_text="Split train").locator(".histogram")).to_contain_text(
        "Characters of a record"
    )
    expect(page.locator(".one").first).to_contain_text("Is mooring 0 free?")
    page.get_by_role("button", name="Later").click()
    expect(page.locator(".one").first).to_contain_text("Is mooring 10 free?")
    page.get_by_role("button", name="dev").click()
    expect(page.locator(".one").first).to_contain_text("Is berth 0 free?")
    page.get_by_role("button", name="train").click()
    page.get_by_label("Model").fill("tiny-gemma")
    page.get_by_label("Longest").fill("24")
    page.get_by_role("button", name="Count tokens").click()
    counted = page.locator(".token-result")
    expect(counted).to_contain_text("40 of 40 records")
    expect(counted.locator(".bar-fill.over")).not_to_have_count(0)
    page.get_by_role("button", name="Show tokens").click()
    expect(counted.locator(".record").first).to_contain_text("train.json line 1")
    masked = counted.locator(".record").first.locator(".tokens .masked").all_inner_texts()
    assert "".join(masked) == "<bos>Is mooring 0 free?"

    expect(page.get_by_role("link", name="Use in a new job")).to_have_attribute(
        "href",
        "#/new?task=finetune&dataset="
        + page.locator("code", has_text="dataset:").inner_text().replace(":", "%3A"),
    )
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Data sets")
    assert service.client.get("/datasets", params={"name": "<b>moorings</b>"}).json()["items"] == []
