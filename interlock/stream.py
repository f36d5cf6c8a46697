"""The public stream of events: its entry, and the port that writes and reads it.

A derived feed of the ledger: an entry carries ids, type and digests, never a body. Losing it loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from interlock.canonical import sha256_hex
from interlock.event import StoredEvent

STREAM = "interlock:events"
READERS = "interlock:readers"
PROJECTED = "interlock:projected"
ENTRY_VERSION = 1
WINDOW_BYTES = 512 * 2**20
"""What the stream may take of the server's memory, however many entries that are."""
NAME_BYTES_MAX = 160
"""A longer name stands in an entry as `sha256:<hex>`, so that no name can make an entry exceed 1 KiB."""


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
        _short(event.stream_id),
        event.version,
        _short(event.type),
        _short(event.session),
        _short(event.tenant),
        event.at_us,
        event.hash,
    )


def _short(name: str) -> str:
    if len(name) <= NAME_BYTES_MAX // 4:
        return name
    data = name.encode()
    return name if len(data) <= NAME_BYTES_MAX else f"sha256:{sha256_hex(data)}"


class StreamTail(NamedTuple):
    """Where the stream ends."""

    seq: int
    """0 for an empty or emptied stream."""
    incarnation: str
    """"" where the last entry is none of ours."""
    hash: str


def tail_at(entry: StreamEntry) -> StreamTail:
    """The tail of a stream that ends with this entry."""
    return StreamTail(entry.seq, entry.incarnation, entry.hash)


EMPTY = StreamTail(0, "", "")


class EventStream(Protocol):
    """The stream as the relay, the projector and outside readers use it.

    Every method raises BrokerUnavailableError; whether a publish took place is then unknown.
    """

    def tail(self) -> StreamTail:
        """The last entry; EMPTY for a stream without entries and for one whose end was cut off."""
        ...

    def publish(self, entries: Sequence[StreamEntry], *, after: StreamTail) -> StreamTail:
        """Append entries if the stream ends with `after`; returns its tail afterwards, which is that of the
        last entry exactly when this very entry stands there. Entries are dense and in order.

        In a stream that was restarted and has no entry yet, `after.seq` alone is compared.
        """
        ...

    def restart(self, *, after: int, last: int) -> bool:
        """Empty the stream so that the next entry may be after + 1, if its last entry still has seq `last`
        (0: it has none). False: somebody else published meanwhile."""
        ...

    def read(self, after: int, limit: int, block_ms: int) -> list[StreamEntry]:
        """Entries with seq > after, waiting up to block_ms for one (0: do not wait). What is no entry of a
        known version is left out."""
        ...

    def register(self, reader: str, seq: int, lease_ms: int) -> None:
        """Say how far a reader is; the stream keeps what live readers have not read."""
        ...

    def slowest(self) -> int | None:
        """How far the slowest live reader is; None without any."""
        ...

    def trim(self, *, entries_max: int, bytes_max: int = WINDOW_BYTES) -> int:
        """Drop what every live reader has read, and what lies beyond the window; returns how many.

        Without a live reader only the window counts. The last entry always stays: it is what publishing is
        guarded by.
        """
        ...


class ProjectionNotice(Protocol):
    """Tells who waits how far the projection is. A lost notice costs one polling interval of the waiter."""

    def announce(self, seq: int) -> None:
        """Say that the projection now holds everything up to seq; never raises for a lost broker."""
        ...

    def projected(self) -> int:
        """The last announced seq, 0 where nothing is known."""
        ...

    def wait(self, seq: int, seconds: float) -> bool:
        """Wait until seq is announced; False when the time ran out."""
        ...
