"""The file of measured figures: each benchmark writes its own section of `results.md`, and no other.

A section says on what machine and when it was measured, so that sections may be of different days.
"""

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).with_name("results.md")

_INTRODUCTION = """# Measured

Written by the benchmarks beside this file, a section each. `make bench` runs those that need nothing but
this repository. Absolute times are those of the machine that a section names: what carries over are ratios.
"""
_SECTION = re.compile(r"^## ", re.MULTILINE)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown; the first column holds words, the others numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def write_section(title: str, text: str, path: Path = RESULTS) -> None:
    """Replace the section with this title, or add it; sections are ordered by title. It is printed too."""
    print(f"{title}\n\n{text.strip()}")
    sections = _sections(path.read_text(encoding="utf-8")) if path.exists() else {}
    sections[title] = f"{text.strip()}\n\nMeasured {datetime.now(UTC):%Y-%m-%d} on {machine()}.\n"
    parts = [f"\n## {name}\n\n{sections[name]}" for name in sorted(sections)]
    path.write_text(_INTRODUCTION + "".join(parts), encoding="utf-8")


def machine() -> str:
    """The machine in a few words: processor, cores of this process, memory, system, Python, and how many
    processes wanted to run in the last five minutes.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.system()} {platform.machine()}"
    load = f"load average {os.getloadavg()[1]:.1f}"
    python = f"Python {platform.python_version()}"
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB, {system}, {python}, {load}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "an unknown processor")


def _sections(text: str) -> dict[str, str]:
    """Text of the sections by title."""
    found = {}
    for part in _SECTION.split(text)[1:]:
        title, _, body = part.partition("\n")
        found[title] = body.strip() + "\n"
    return found
