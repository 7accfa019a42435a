"""Hosts by the number of their idle devices: the fullest ones that fit are found without a look at all."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Set


class Pool:
    """Hosts with so many idle devices each."""

    def __init__(self, idle: Mapping[str, int]) -> None:
        self._idle: dict[str, int] = {}
        self._names: dict[int, list[str]] = {}
        for name in sorted(idle):
            self._idle[name] = idle[name]
            self._names.setdefault(idle[name], []).append(name)

    def __contains__(self, name: str) -> bool:
        return name in self._idle

    def fitting(self, devices: int, hosts: int, avoid: Set[str] = frozenset()) -> list[str]:
        """Up to so many hosts with at least so many idle devices: those with the fewest, then by name.

        Args:
            avoid: hosts that are passed over.
        """
        found: list[str] = []
        for idle in sorted(self._names):
            if idle >= devices and len(found) < hosts:
                names = self._names[idle]
                if avoid:
                    names = [name for name in names if name not in avoid]
                found += names[: hosts - len(found)]
        return found

    def set(self, name: str, idle: int) -> None:
        """Say how many idle devices a host has now."""
        self.remove(name)
        self._idle[name] = idle
        insort(self._names.setdefault(idle, []), name)

    def remove(self, name: str) -> None:
        names = self._names[self._idle.pop(name)]
        del names[bisect_left(names, name)]
