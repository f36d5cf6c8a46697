"""Evidence is verified as it is read, in pages: however much of it there is, memory stays flat."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from governance.adapters.sqlite_ledger import SqliteLedger
from governance.append import ANY_VERSION
from governance.ledger import Append
from governance.verification.fault import FaultCode
from governance.verify import EVENTS_PAGE, Report
from interlock.event import NewEvent, evidence_stream
from tests.support.installation import Installation, named
from tests.unit.governance.verify.conftest import Change

STREAM = evidence_stream("dead-letters")
EVENTS = 50_000
BATCH = 2_500
MEMORY_BYTES_MAX = 8_000_000


def write_evidence(ledger: SqliteLedger, count: int) -> None:
    event = NewEvent(
        "SandboxViolation", b'{"said":"%s"}' % (b"x" * 400), "event:1", "worker", moves_state=False
    )
    with ledger.write() as transaction:
        transaction.append([Append(STREAM, ANY_VERSION, [event] * count, None, None, "default", "s-1")])


def test_a_huge_stream_takes_no_more_memory_than_a_page(
    installation: Installation, ledger: SqliteLedger, checked: Callable[..., Report]
) -> None:
    for _ in range(EVENTS // BATCH):
        write_evidence(ledger, BATCH)
    tracemalloc.start()
    try:
        report = checked()
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (report.ok, report.events) == (True, 18 + EVENTS)
    assert most_bytes < MEMORY_BYTES_MAX


def test_what_is_wrong_on_a_later_page_is_named(
    ledger: SqliteLedger, change: Change, checked: Callable[..., Report]
) -> None:
    write_evidence(ledger, 2 * EVENTS_PAGE)
    place = 18 + EVENTS_PAGE
    change(f"UPDATE tool_event SET at_us = at_us + 1 WHERE ord = {place}")
    assert named(checked()) == {(place, FaultCode.ROW_CHANGED), (place + 1, FaultCode.TIME_BACK)}


def test_a_row_between_two_pages_that_is_gone_is_named(
    ledger: SqliteLedger, change: Change, checked: Callable[..., Report]
) -> None:
    write_evidence(ledger, 2 * EVENTS_PAGE)
    change(f"DELETE FROM tool_event WHERE kind = 'evidence' AND version = {EVENTS_PAGE}")
    assert FaultCode.VERSION_GAP in {code for _, code in named(checked())}


def test_a_head_that_is_behind_its_evidence_is_named(
    ledger: SqliteLedger, change: Change, checked: Callable[..., Report]
) -> None:
    write_evidence(ledger, 5)
    change("UPDATE head SET version = 3 WHERE kind = 'evidence'")
    assert named(checked()) == {(18 + 5, FaultCode.HEAD_DIFFERS)}
