"""A service with much in it, and how long its pages take to answer somebody."""

import math
import statistics
from dataclasses import dataclass

from playwright.sync_api import Page
from sqlalchemy import insert, select

from store.logs import LogLine
from store.tables import Job as JobRow
from store.tables import Metric
from tests.api.parts import Job
from tests.browser.served import Served

JOBS = 5_000
POINTS = 100_000
LINES = 50_000
CHUNK = 5_000
REPEATS = 5


def many_jobs(service: Served, count: int = JOBS) -> None:
    """Store copies of a finished job, straight into the table."""
    job = service.submit(name="crowd", labels={"team": "search"})
    service.client.post(f"/jobs/{job['id']}/cancel").raise_for_status()
    with service.database.transaction() as session:
        row = dict(
            session.execute(select(*JobRow.__table__.columns).where(JobRow.id == job["id"])).mappings().one()
        )
        rows = [
            row
            | {
                "id": f"00000000-0000-7000-8000-{n:012x}",
                "name": f"crowd {n}",
                "created_at": row["created_at"] - n,
                "labels": {"team": ("search", "maps", "mail")[n % 3]},
            }
            for n in range(count)
        ]
        session.execute(insert(JobRow), rows)


def long_job(service: Served, points: int = POINTS, lines: int = LINES) -> Job:
    """A finished job with so many metric points and log lines."""
    job = service.job(name="long")
    service.start(job)
    with service.database.transaction() as session:
        rows = [
            {
                "job_id": job.id,
                "attempt": 1,
                "kind": "train",
                "step": step,
                "time": 1.0 + step,
                "values": _values(step),
            }
            for step in range(1, points + 1)
        ]
        session.execute(insert(Metric), rows)
    for start in range(1, lines + 1, CHUNK):
        texts = (f"step {seq} loss {_values(seq)['loss']:.4f}" for seq in range(start, start + CHUNK))
        written = [LogLine(1, start + n, 1.0 + start + n, n % 2, text) for n, text in enumerate(texts)]
        job.archive.append(job.id, written)
    job.finish()
    return job


def _values(step: int) -> dict[str, float]:
    loss = 1 + 3 * math.exp(-step / 20_000) + math.sin(step * 0.7) / 10
    return {"loss": loss, "learning_rate": 1e-4, "grad_norm": 1.0, "tokens_per_second": 40_000.0}


@dataclass(frozen=True)
class Interaction:
    """Something that somebody does, and how one sees that the page has answered; both are JavaScript."""

    name: str
    act: str
    until: str


def first(selector: str) -> str:
    return f"document.querySelector({selector!r})"


def typed(selector: str, text: str) -> str:
    """Writes a text into a field."""
    field = first(selector)
    return f"{field}.value = {text!r}; {field}.dispatchEvent(new Event('input', {{bubbles: true}}))"


LIST = (
    Interaction(
        "list: the next 50 jobs",
        "[...document.querySelectorAll('.pager button')].at(-1).click()",
        f"{first('.pager .number')}.textContent.startsWith('51')",
    ),
    Interaction(
        "list: back to the first 50",
        "document.querySelector('.pager button').click()",
        f"{first('.pager .number')}.textContent.startsWith('1\u2013')",
    ),
    Interaction(
        "list: choose a job",
        f"{first('table.jobs input')}.click()",
        "document.querySelector('.head button').textContent !== ''",
    ),
)
CURVES = (
    Interaction("curves: smooth", f"{typed('.chart-tools input[type=range]', '4')}", "true"),
    Interaction("curves: log scale", f"{first('.chart-tools input[type=checkbox]')}.click()", "true"),
    Interaction(
        "curves: move the cursor",
        "{ const canvas = document.querySelector('canvas'); const box = canvas.getBoundingClientRect();"
        " canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2,"
        " clientY: box.top + 50, bubbles: true})) }",
        "true",
    ),
)
LOGS = (
    Interaction(
        "log: search",
        typed("#log-search", "step 499"),
        f"/^\\d+ of/.test({first('.log-tools [role=status]')}.textContent)",
    ),
    Interaction(
        "log: show all again",
        typed("#log-search", ""),
        f"!/of/.test({first('.log-tools [role=status]')}.textContent)",
    ),
)
FORM = (
    Interaction(
        "form: find an argument",
        typed("#argument-search", "lora rank"),
        f"{first('.arguments > [role=status]')}.textContent.startsWith('1 of')",
    ),
    Interaction(
        "form: all arguments again",
        typed("#argument-search", ""),
        f"{first('.arguments > [role=status]')}.textContent === ''",
    ),
)


def timed(page: Page, interaction: Interaction) -> float:
    """Milliseconds from an action to the frame that shows its effect."""
    return page.evaluate(
        f"""async () => {{
            const start = performance.now();
            {interaction.act};
            await new Promise((done) => {{
                const look = () => requestAnimationFrame(({interaction.until}) ? done : look);
                requestAnimationFrame(look);
            }});
            return performance.now() - start;
        }}"""
    )


def measure(page: Page, service: Served, job: Job, repeats: int = REPEATS) -> dict[str, float]:
    """The median of each interaction, in milliseconds, by name."""
    pages = (
        ("/jobs", "table.jobs tbody tr:nth-child(50)", LIST),
        (f"/jobs/{job.id}", ".readout b", CURVES),
        (f"/jobs/{job.id}?tab=logs", ".line", LOGS),
        ("/new", ".argument", FORM),
    )
    found: dict[str, float] = {}
    for place, sign, interactions in pages:
        page.goto(f"{service.url}/#{place}")
        page.locator(sign).first.wait_for()
        page.wait_for_timeout(1000)
        rounds = [[timed(page, each) for each in interactions] for _ in range(repeats)]
        for each, times in zip(interactions, zip(*rounds, strict=True), strict=True):
            found[each.name] = statistics.median(times)
    return found
