"""The public stream of events: its entry, and the port that writes and reads it.

A derived feed of the ledger: an entry carries ids, type and digests, never a body. Losing it loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from interlock.event import StoredEvent

STREAM = "interlock:events"
ENTRY_VERSION = 1


class StreamEntry(NamedTuple):
    """What stands in the stream for one event: a pure function of its ledger row, at most 1 KiB."""

    seq: int
    incarnation: str
    kind: str
    stream_id: str
    version: int
    type: str
    session: str
    tenant: str
    at_us: int
    hash: str


def entry_of(event: StoredEvent, incarnation: str) -> StreamEntry:
    """The entry of one event."""
    return StreamEntry(
        event.seq,
        incarnation,
        event.kind,
        event.stream_id,
        event.version,
        event.type,
        event.session,
        event.tenant,
        event.at_us,
        event.hash,
    )


class StreamTail(NamedTuple):
    """Where the stream ends."""

    seq: int
    """0 for an empty or emptied stream."""
    incarnation: str
    hash: str


class EventStream(Protocol):
    """The stream as the relay, the projector and outside readers use it."""

    def tail(self) -> StreamTail:
        """The last entry."""
        ...

    def publish(self, entries: Sequence[StreamEntry], *, after: int) -> int:
        """Append entries if the last one has seq `after`; returns the stream's last seq afterwards (other
        than the last entry's when nothing was appended). Entries are dense and in order."""
        ...

    def restart(self, *, after: int) -> None:
        """Empty the stream so that the next entry may be after + 1."""
        ...

    def read(self, after: int, limit: int, block_ms: int) -> list[StreamEntry]:
        """Entries with seq > after, waiting up to block_ms for one (0: do not wait)."""
        ...

    def register(self, reader: str, seq: int, lease_ms: int) -> None:
        """Say how far a reader is; the stream keeps what live readers have not read."""
        ...

    def trim(self, *, entries_max: int) -> int:
        """Drop what every live reader has read, and what lies beyond the window; returns how many."""
        ...
