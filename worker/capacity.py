"""How much memory this host lends to jobs."""

from collections.abc import Iterator
from pathlib import Path

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def host_memory(membership: Path = MEMBERSHIP, root: Path = CGROUP_ROOT) -> int:
    """Bytes that the processes of this host may use together: its memory, or less where a control group (of
    version 2 or 1) that this process is in, or one above it, has a limit.
    """
    return min([psutil.virtual_memory().total, *_limits(membership, root)])


def _limits(membership: Path, root: Path) -> Iterator[int]:
    try:
        entries = membership.read_text().splitlines()
    except OSError:
        return
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if controllers == "":
            yield from _along(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _along(root / "memory", path, "memory.limit_in_bytes")


def _along(root: Path, path: str, name: str) -> Iterator[int]:
    """The limits of a group and of those above it."""
    folder = root / path.lstrip("/")
    for group in (folder, *folder.parents):
        if not group.is_relative_to(root):
            return
        try:
            yield int((group / name).read_text())
        except (OSError, ValueError):  # no such file, or "max"
            continue
