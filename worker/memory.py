"""Evidence that the kernel has killed for want of memory."""

from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def oom_kills(membership: Path = MEMBERSHIP, root: Path = CGROUP_ROOT) -> int:
    """How many processes of this process's memory control group the kernel has killed so far.

    Reads cgroup version 2 (`memory.events`) or 1 (`memory.oom_control`); 0 where neither tells.
    """
    try:
        entries = membership.read_text().splitlines()
    except OSError:
        return 0
    counts = [0]
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if controllers == "":
            counts.append(_count(root / path.lstrip("/") / "memory.events"))
        elif "memory" in controllers.split(","):
            counts.append(_count(root / "memory" / path.lstrip("/") / "memory.oom_control"))
    return max(counts)


def _count(file: Path) -> int:
    try:
        fields = (line.split() for line in file.read_text().splitlines())
        return next(int(field[1]) for field in fields if field[0] == "oom_kill")
    except (OSError, StopIteration):
        return 0
