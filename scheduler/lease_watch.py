"""Watches beats: a lease is a counter, not a time. Judges liveness only, never safety.

A boot is dead when its counter stood still in at least four successful looks spread over the lease time of
this host's own CLOCK_BOOTTIME, or at once when it ran on this host and the kernel has released its file lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from governance.ledger import Boot

LOOKS_MIN = 4

LockProbe = Callable[[Boot], bool | None]
"""Whether a boot's file lock is free; None where that cannot be known (another host)."""


@dataclass(slots=True)
class _Watch:
    counter: int
    since_ns: int
    looks: int


class LeaseWatch:
    """What one sweeper has seen of each boot's counter."""

    def __init__(self, lease_ms: int, lock_is_free: LockProbe) -> None:
        self._lease_ns = lease_ms * 1_000_000
        self._lock_is_free = lock_is_free
        self._seen: dict[str, _Watch] = {}

    def look(self, boots: Iterable[Boot], boottime_ns: int) -> set[str]:
        """Note one successful reading; returns the ids of boots that are dead."""
        current = list(boots)
        self._forget(boot.boot_id for boot in current)
        return {boot.boot_id for boot in current if self._is_dead(boot, boottime_ns)}

    def start_anew(self) -> None:
        """A reading failed: nothing seen so far says anything about who lives."""
        self._seen.clear()

    def _forget(self, current: Iterable[str]) -> None:
        for gone in self._seen.keys() - set(current):
            del self._seen[gone]

    def _is_dead(self, boot: Boot, boottime_ns: int) -> bool:
        free = self._lock_is_free(boot)
        if free is not None:
            return free
        watch = self._seen.get(boot.boot_id)
        if watch is None or watch.counter != boot.counter:
            self._seen[boot.boot_id] = _Watch(boot.counter, boottime_ns, 1)
            return False
        watch.looks += 1
        return watch.looks >= LOOKS_MIN and boottime_ns - watch.since_ns >= self._lease_ns
