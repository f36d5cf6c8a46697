"""Watches beats: a lease is a counter, not a time. Judges liveness only, never safety.

A boot is dead at once when it ran on this host and the kernel has released its file lock. Else it is dead
when its counter stood still in at least four successful looks spread over the lease time of this host's own
CLOCK_BOOTTIME, and then stands still for two more beats while the store demonstrably takes writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from governance.ledger import Boot

LOOKS_MIN = 4
BEATS_MIN = 2
"""How many beats of a living boot must have had their chance after its lease, in a store that took writes."""

FORGOTTEN_NS = 3_600_000_000_000
"""After so long a silence nobody waits for a boot whose lock cannot be tried."""

LockProbe = Callable[[Boot], bool | None]
"""Whether a boot's file lock is free; None where that cannot be known (another host)."""


@dataclass(slots=True)
class _Watch:
    counter: int
    seen_ns: int
    still_ns: int = 0
    proved_ns: int | None = None
    """Since when the store is seen to take writes, and this one is silent all the same."""
    is_lost: bool = False


class LeaseWatch:
    """What one sweeper has seen of each boot's counter."""

    def __init__(self, lease_ms: int, beat_ms: int, lock_is_free: LockProbe) -> None:
        self._lease_ns, self._beat_ns = lease_ms * 1_000_000, beat_ms * 1_000_000
        self._lock_is_free = lock_is_free
        self._seen: dict[str, _Watch] = {}

    def look(self, boots: Iterable[Boot], boottime_ns: int) -> set[str]:
        """Note one successful reading; returns the ids of boots that are dead."""
        current = list(boots)
        self._forget(boot.boot_id for boot in current)
        return {boot.boot_id for boot in current if self._is_dead(boot, boottime_ns)}

    @property
    def suspects(self) -> bool:
        """Whether a lease ran out: prove that the store takes writes."""
        return any(watch.still_ns >= self._lease_ns and not watch.is_lost for watch in self._seen.values())

    def is_gone(self, boot: Boot) -> bool:
        """Whether the process is known to be gone, and not only silent: it will never beat again."""
        return bool(self._lock_is_free(boot))

    def is_over(self, boot: Boot) -> bool:
        """Whether nobody need look at it again: it is gone, or lost and silent for an hour on another host.

        One that beats after that is looked at anew, by its beat.
        """
        is_free, watch = self._lock_is_free(boot), self._seen.get(boot.boot_id)
        if is_free is not None:
            return is_free
        return watch is not None and watch.is_lost and watch.still_ns >= FORGOTTEN_NS

    def prove(self, boottime_ns: int) -> None:
        """The store took a write of this sweeper's at this moment."""
        for watch in self._seen.values():
            if watch.still_ns >= self._lease_ns and watch.proved_ns is None:
                watch.proved_ns = boottime_ns

    def disprove(self) -> None:
        """The store takes no writes: silence says nothing."""
        for watch in self._seen.values():
            watch.proved_ns = None

    def start_anew(self) -> None:
        """A reading failed: nothing seen so far says anything about who lives."""
        self._seen.clear()

    def _forget(self, current: Iterable[str]) -> None:
        for gone in self._seen.keys() - set(current):
            del self._seen[gone]

    def _is_dead(self, boot: Boot, boottime_ns: int) -> bool:
        if self.is_gone(boot):
            return True
        watch = self._seen.get(boot.boot_id)
        if watch is None or watch.counter != boot.counter:
            self._seen[boot.boot_id] = _Watch(boot.counter, boottime_ns)
            return False
        # A long gap between two looks (a suspended host, a blocked sweeper) counts as one of four, no more.
        watch.still_ns += min(boottime_ns - watch.seen_ns, -(-self._lease_ns // (LOOKS_MIN - 1)))
        watch.seen_ns = boottime_ns
        silent_ns = 0 if watch.proved_ns is None else boottime_ns - watch.proved_ns
        watch.is_lost = watch.is_lost or silent_ns > BEATS_MIN * self._beat_ns
        return watch.is_lost
