"""The stream, wake-ups and notices in memory: for tests, and for a system that lives in one process.

Same guards as the real ones. Nothing survives the process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Condition

from interlock.errors import BrokerUnavailableError
from interlock.stream import EMPTY, WINDOW_BYTES, StreamEntry, StreamTail, tail_at

ENTRY_BYTES = 512
"""What an entry is taken to cost."""


class InMemoryEventStream:
    """EventStream that can also be lost, taken away and tampered with. Safe for threads."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._entries: list[StreamEntry] = []
        self._position = 0
        self._readers: dict[str, tuple[int, float]] = {}
        self._away = False

    def tail(self) -> StreamTail:
        with self._changed:
            return self._tail()

    def publish(self, entries: Sequence[StreamEntry], *, after: StreamTail) -> StreamTail:
        with self._changed:
            tail = self._tail()
            fits = self._position == after.seq if tail == EMPTY else tail == after
            if fits and entries:
                self._entries.extend(entries)
                self._position = entries[-1].seq
                self._changed.notify_all()
            return self._tail()

    def restart(self, *, after: int, last: int) -> bool:
        with self._changed:
            if self._tail().seq != last:
                return False
            self._entries, self._position = [], after
            return True

    def read(self, after: int, limit: int, block_ms: int) -> list[StreamEntry]:
        give_up_at = time.monotonic() + block_ms / 1000
        with self._changed:
            while True:
                self._require_present()
                found = [entry for entry in self._entries if entry.seq > after][:limit]
                left = give_up_at - time.monotonic()
                if found or left <= 0:
                    return found
                self._changed.wait(left)

    def register(self, reader: str, seq: int, lease_ms: int) -> None:
        with self._changed:
            self._require_present()
            self._readers[reader] = (seq, time.monotonic() + lease_ms / 1000)

    def slowest(self) -> int | None:
        with self._changed:
            self._require_present()
            return self._slowest()

    def trim(self, *, entries_max: int, bytes_max: int = WINDOW_BYTES) -> int:
        with self._changed:
            tail, before = self._tail(), len(self._entries)
            window = min(entries_max, bytes_max // ENTRY_BYTES)
            first = min(max(tail.seq - window, self._slowest() or 0) + 1, tail.seq)
            self._entries = [entry for entry in self._entries if entry.seq >= first]
            return before - len(self._entries)

    def lose(self) -> None:
        """Lose everything, as an emptied server does."""
        with self._changed:
            self._entries, self._position, self._readers = [], 0, {}

    def set_away(self, away: bool) -> None:
        """Answer every call with BrokerUnavailableError, or no longer."""
        with self._changed:
            self._away = away
            self._changed.notify_all()

    def _tail(self) -> StreamTail:
        self._require_present()
        return tail_at(self._entries[-1]) if self._entries else EMPTY

    def _slowest(self) -> int | None:
        now = time.monotonic()
        self._readers = {name: held for name, held in self._readers.items() if held[1] >= now}
        return min((seq for seq, _ in self._readers.values()), default=None)

    def _require_present(self) -> None:
        if self._away:
            raise BrokerUnavailableError("the stream was taken away")


class ManualWaker:
    """Waker inside one process."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._woken: set[str] = set()

    def wake(self, role: str) -> None:
        with self._changed:
            self._woken.add(role)
            self._changed.notify_all()

    def wait(self, role: str, seconds: float) -> bool:
        with self._changed:
            woken = self._changed.wait_for(lambda: role in self._woken, timeout=seconds)
            self._woken.discard(role)
            return woken


class InMemoryProjectionNotice:
    """ProjectionNotice inside one process."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._seq = 0

    def announce(self, seq: int) -> None:
        with self._changed:
            self._seq = seq
            self._changed.notify_all()

    def projected(self) -> int:
        with self._changed:
            return self._seq

    def wait(self, seq: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._seq >= seq, timeout=seconds)
