"""The rows of a ledger as they lie there, for whoever trusts nothing else: a port of `verify`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from governance.ledger import Due, Head, KeyName, KeyOwner
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
    """None of evidence, which grows without a bound: that is read in pages, with `events_of_stream`."""
    due: Due | None
    before: str | None = None
    """Of a ready one: an open invocation that stands before it in its stage."""


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

    def unsequenced(self, limit: int) -> list[StoredEvent]:
        """Events without a number for more than a minute; none where appending gives the number."""
        ...

    def headless(self, streams: Collection[Stream]) -> set[Stream]:
        """Those of these streams that have no head."""
        ...

    def streams(self, after: Stream | None, limit: int) -> list[StreamRecord]:
        """Heads in the order of kind and id, each with all its events but for evidence."""
        ...

    def events_of_stream(self, stream: Stream, after_version: int | None, limit: int) -> list[StoredEvent]:
        """The readable events of one stream by version, from the very first (None); empty at its end only."""
        ...

    def dues(self, after: Stream | None, limit: int) -> list[Due]:
        """Due rows in the order of kind and id."""
        ...

    def epoch(self) -> int:
        """The control epoch."""
        ...

    def events_of(self, streams: Collection[Stream]) -> dict[Stream, list[StoredEvent]]:
        """The readable events of these streams, by version; a stream without events is absent."""
        ...

    def contracts_of(self, digests: Collection[str]) -> dict[str, bytes]:
        """The bodies that are kept under these digests."""
        ...

    def contracts(self, after: str | None, limit: int) -> list[tuple[str, bytes]]:
        """Contracts in the order of their digests."""
        ...

    def denials_of(self, action_digests: Collection[str]) -> dict[str, str]:
        """Action digest → the invocation that its denial row names."""
        ...

    def denials(self, after: str | None, limit: int) -> list[tuple[str, str]]:
        """Denial rows in the order of their action digests."""
        ...

    def owners_of(self, keys: Collection[KeyName]) -> dict[KeyName, KeyOwner]:
        """What the rows of these idempotency keys say, live or not."""
        ...

    def owners(self, after: KeyName | None, limit: int) -> list[tuple[KeyName, KeyOwner]]:
        """Rows of idempotency keys in their order."""
        ...
