"""What axe finds on a page."""

from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
GRAVE = ("serious", "critical")


def violations(page: Page) -> list[str]:
    """The serious and critical violations of the page as it stands, each with where it is."""
    page.evaluate(AXE + "; undefined")
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]} ({node.get('failureSummary', '')})"
        for each in found
        if each["impact"] in GRAVE
        for node in each["nodes"]
    ]
