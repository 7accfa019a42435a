"""Every page: what axe finds in light and dark, and where the keyboard goes."""

from playwright.sync_api import Page

from tests.browser.accessibility import violations


def test_the_pages_have_no_grave_violation(page: Page) -> None:
    page.wait_for_selector("h1")
    assert violations(page) == []
