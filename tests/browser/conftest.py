"""One browser and one server for all tests of the dashboard; every test has a page of its own.

A page's errors fail its test: what the console calls an error, exceptions that nobody catches, and answers
that no page should ask for.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, expect, sync_playwright

from store.broker import ensure_broker
from tests.browser.served import Served, served, settings_in
from tests.service import build_tiny_gemma, write_sft_data

CHROMIUM = shutil.which(os.environ.get("REGATTA_CHROMIUM", "chromium"))
MISSING = "no Chromium: make chromium installs Debian's, REGATTA_CHROMIUM names another one"
EXPECTED = frozenset({401, 403, 409, 413, 422})
"""Answers that say what a user did wrong, which pages show."""
TIMEOUT_MS = 30_000

expect.set_options(timeout=TIMEOUT_MS)


# A running Playwright holds an event loop in this thread, where tests elsewhere run theirs: hence no longer.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium; the tests skip where there is none."""
    if CHROMIUM is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path) -> Path:
    """A folder with a model, data and a database."""
    folder = tmp_path_factory.mktemp("browser")
    build_tiny_gemma(folder / "models" / "tiny-gemma")
    write_sft_data(folder / "data" / "sft")
    shutil.copy(migrated_sqlite, folder / "regatta.db")
    return folder


@pytest.fixture(scope="package")
def service(browser: Browser, folder: Path) -> Iterator[Served]:
    """The server that the pages come from; asked for after the browser, as nothing needs it without one."""
    settings = settings_in(folder, folder / "regatta.db")
    broker = ensure_broker(settings.data_dir)
    try:
        with served(settings) as running:
            running.host("pier-1", devices=2)
            yield running
    finally:
        broker.stop()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages whose errors fail the test; takes the options of a browser context."""
    errors: list[str] = []
    contexts = []

    def open_one(url: str, **options: Any) -> Page:
        wanted: dict[str, Any] = {
            "viewport": {"width": 1280, "height": 800},
            "reduced_motion": "reduce",
        } | options
        context = browser.new_context(**wanted)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: errors.extend(_error_in(message)))
        page.on("pageerror", lambda error: errors.append(f"exception: {error}"))
        page.on("response", lambda response: errors.extend(_unexpected(response)))
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def page(open_page: Callable[..., Page], service: Served) -> Page:
    """The dashboard's first page."""
    return open_page(f"{service.url}/")


def _error_in(message: ConsoleMessage) -> Iterator[str]:
    # Chromium also reports each 4xx answer here; `_unexpected` judges those.
    if message.type == "error" and not message.text.startswith("Failed to load resource"):
        yield f"console: {message.text} ({message.location})"


def _unexpected(response: Response) -> Iterator[str]:
    absent = response.status == 404 and response.url.endswith("/result")  # which says that there is none yet
    if response.status >= 400 and response.status not in EXPECTED and not absent:
        yield f"{response.status} from {response.request.method} {response.url}"
