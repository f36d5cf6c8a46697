"""The rows of a ledger as they lie there, for whoever trusts nothing else: a port of `verify`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from governance.ledger import Due, Head
from interlock.event import StoredEvent, Stream


class EventRecord(NamedTuple):
    """One row of the log."""

    place: int
    """Its number; anything at all in a ledger that was tampered with."""
    event: StoredEvent | None
    """None where the row cannot be read as an event."""
    payload_digest: str
    """Hex digest of the payload as it stands beside it."""


class StreamRecord(NamedTuple):
    """One head with its stream and its due row, all of one moment."""

    head: Head
    events: list[StoredEvent]
    due: Due | None


class LedgerRecords(Protocol):
    """Raw rows, read in pages; each page is of one moment."""

    @property
    def incarnation(self) -> str:
        """What the ledger says that it is."""
        ...

    def issued_seq(self) -> int:
        """The highest number that was ever given out."""
        ...

    def events(self, after: int | None, limit: int) -> list[EventRecord]:
        """Rows of the log by number, from the very first (None)."""
        ...

    def headless(self, streams: Collection[Stream]) -> set[Stream]:
        """Those of these streams that have no head."""
        ...

    def streams(self, after: Stream | None, limit: int) -> list[StreamRecord]:
        """Heads in the order of kind and id, each with all its events."""
        ...

    def dues(self, after: Stream | None, limit: int) -> list[Due]:
        """Due rows in the order of kind and id."""
        ...
