"""The raw rows: evidence may be as long as the log, so it is read in pages and never with its head."""

from __future__ import annotations

from typing import Protocol, cast

from governance.append import ANY_VERSION
from governance.ledger import Append, Ledger
from governance.verification.record import LedgerRecords
from interlock.event import evidence_stream
from tests.support.ledger import an_append, an_event

STREAM = evidence_stream("dead-letters")


class _WithRecords(Protocol):
    def records(self) -> LedgerRecords: ...


def records_of(ledger: Ledger) -> LedgerRecords:
    with ledger.read():  # by then everything has its number
        return cast(_WithRecords, ledger).records()


def write_evidence(ledger: Ledger, count: int) -> None:
    with ledger.write() as transaction:
        transaction.append([Append(STREAM, ANY_VERSION, [an_event("DeadLettered")] * count)])


def test_evidence_is_read_in_pages(ledger: Ledger) -> None:
    write_evidence(ledger, 7)
    records, after, pages = records_of(ledger), None, []
    while page := records.events_of_stream(STREAM, after, 3):
        pages.append([event.version for event in page])
        after = page[-1].version
    assert pages == [[1, 2, 3], [4, 5, 6], [7]]
    assert [event.seq for event in records.events_of_stream(STREAM, None, 9)] == list(range(1, 8))
    assert records.events_of_stream(evidence_stream("none"), None, 3) == []


def test_a_head_comes_with_its_events_but_for_evidence(ledger: Ledger) -> None:
    write_evidence(ledger, 2)
    with ledger.write() as transaction:
        transaction.append([an_append("i-1")])
    found = records_of(ledger).streams(None, 9)
    assert [(record.head.kind, record.head.version, len(record.events)) for record in found] == [
        ("evidence", 2, 0),
        ("invocation", 1, 1),
    ]
