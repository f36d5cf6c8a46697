"""A stream that delivers what a test says, and a ledger that shows what a test lets it show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from governance.ledger import Ledger, LedgerInfo
from interlock.errors import LedgerUnavailableError
from interlock.event import StoredEvent
from interlock.memory_stream import InMemoryEventStream
from interlock.stream import StreamEntry, entry_of


class ScriptedStream(InMemoryEventStream):
    """Each read answers the next delivery, whatever it is; then nothing."""

    def __init__(self, deliveries: Sequence[Sequence[StreamEntry]]) -> None:
        super().__init__()
        self._deliveries = list(deliveries)

    def read(self, after: int, limit: int, block_ms: int) -> list[StreamEntry]:
        return list(self._deliveries.pop(0)) if self._deliveries else []


class ShownView:
    """The events among `log` whose number is shown."""

    def __init__(self, log: Sequence[StoredEvent], shown: set[int]) -> None:
        self._log = [event for event in log if event.seq in shown]

    def range(self, after_seq: int, limit: int) -> list[StoredEvent]:
        return [event for event in self._log if event.seq > after_seq][:limit]

    def last_seq(self) -> int:
        return max((event.seq for event in self._log), default=0)


class ShownLedger:
    """A log of which a test shows some rows; away when told so."""

    def __init__(
        self, log: Sequence[StoredEvent], info: LedgerInfo, *, shown: set[int] | None = None
    ) -> None:
        self.log = list(log)
        self.info = info
        self.shown = {event.seq for event in log} if shown is None else shown
        self.away = False

    @classmethod
    def of(cls, ledger: Ledger, *, shown: set[int] | None = None) -> ShownLedger:
        """Over what a ledger holds now."""
        return cls(log_of(ledger), ledger.info, shown=shown)

    @contextmanager
    def read(self) -> Iterator[ShownView]:
        if self.away:
            raise LedgerUnavailableError("the ledger was taken away")
        yield ShownView(self.log, self.shown)


def log_of(ledger: Ledger) -> list[StoredEvent]:
    """Everything a ledger holds, in order."""
    with ledger.read() as view:
        return view.range(0, view.last_seq())


def entries_of(ledger: Ledger) -> list[StreamEntry]:
    """The entries of everything a ledger holds."""
    return [entry_of(event, ledger.info.incarnation) for event in log_of(ledger)]
