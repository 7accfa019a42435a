"""How long the dashboard takes to answer with 5,000 jobs, 100,000 metric points and 50,000 log lines.

A real server with SQLite and Chromium share the machine. Each figure is the median time from an action to the
frame that shows its effect, taken inside the page; where a page asks the server or waits until typing rests,
that is in it.

    python benchmarks/dashboard.py [--jobs 5000] [--points 100000] [--lines 50000] [--repeats 9]
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import table, write_section
from store.broker import ensure_broker
from store.migrate import upgrade
from tests.browser.crowd import JOBS, LINES, POINTS, long_job, many_jobs, measure
from tests.browser.served import served, settings_in
from tests.service import build_tiny_gemma, write_sft_data


def run(folder: Path, chromium: str, given: argparse.Namespace) -> dict[str, float]:
    build_tiny_gemma(folder / "models" / "tiny-gemma")
    write_sft_data(folder / "data" / "sft")
    settings = settings_in(folder, folder / "regatta.db")
    upgrade(settings.database_url)
    broker = ensure_broker(settings.data_dir)
    try:
        with served(settings) as service, sync_playwright() as playwright:
            service.host("pier-1", devices=2)
            many_jobs(service, given.jobs)
            job = long_job(service, given.points, given.lines)
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(f"{service.url}/")
            found = measure(page, service, job, given.repeats)
            browser.close()
            return found
    finally:
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("jobs", JOBS), ("points", POINTS), ("lines", LINES), ("repeats", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("There is no Chromium; make chromium installs Debian's.")
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), chromium, given)
    about = (
        f"From an action to the frame that shows its effect, medians of {given.repeats}, with {given.jobs}"
        f" jobs, {given.points} metric points and {given.lines} log lines. Server and Chromium share the"
        " machine.\n\n"
    )
    rows = [[name, f"{took:.0f} ms"] for name, took in found.items()]
    write_section("The dashboard", about + table(["", "time"], rows))


if __name__ == "__main__":
    main()
