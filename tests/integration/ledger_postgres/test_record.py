"""The raw rows for `verify`: what has a number, and what should have one by now."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer
from governance.verification.fault import FaultCode
from interlock.clock import SECOND_US, ManualClock, SystemClock
from interlock.event import invocation_stream
from tests.integration.ledger_postgres.conftest import Plain
from tests.support.installation import Installation, named
from tests.support.ledger import a_head, an_append, write


def test_an_event_that_waits_too_long_for_its_number_is_found(ledger: PostgresLedger) -> None:
    write(ledger, an_append("i-1"))
    records = ledger.records()
    assert records.unsequenced(9) == []
    waiting = records.unsequenced(9, older_than_us=-1)
    assert [(event.stream_id, event.seq, event.hash) for event in waiting] == [("i-1", 0, "")]
    PostgresSequencer(ledger, "a").sequence()
    assert records.unsequenced(9, older_than_us=-1) == []


def test_verify_names_what_has_had_no_number_for_minutes(ledger: PostgresLedger, postgres_url: str) -> None:
    write(ledger, an_append("i-1"))
    later = ManualClock(SystemClock().now_us() + 120 * SECOND_US)
    with closing(PostgresLedger.open(postgres_url, later)) as seen_later:
        report = Installation(seen_later, later).verify(seen_later.records())
    assert (None, FaultCode.ROW_UNNUMBERED) in named(report)


def test_an_event_that_was_put_behind_the_cursor_is_found_however_young(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    write(ledger, an_append("i-1"))
    sequencer = PostgresSequencer(ledger, "a")
    while sequencer.sequence():
        pass
    columns = (
        "kind, version, type, format, at_us, cause, actor, tenant, session, moves_state, payload, payload_sha"
    )
    beside().execute(
        f"INSERT INTO tool_event (xid, stream, {columns}) SELECT '3', 'orphan', {columns} FROM tool_event"
    )
    [orphan] = ledger.records().unsequenced(9)
    assert (orphan.stream_id, orphan.seq) == ("orphan", 0)


def test_acceptance_is_shown_as_the_number_of_the_request(ledger: PostgresLedger) -> None:
    write(ledger, an_append("i-0"))
    write(ledger, an_append("i-0", 0), an_append("i-1"))  # what lost has used a number up
    sequencer = PostgresSequencer(ledger, "a")
    while sequencer.sequence():
        pass
    first, second = ledger.records().streams(None, 9)
    assert [first.head.accepted_seq, second.head.accepted_seq] == [1, 2]
    with ledger.read() as view:
        assert view.heads([invocation_stream("i-1")])[invocation_stream("i-1")].accepted_seq != 2


def test_in_a_ledger_at_work_what_has_no_number_yet_stands_behind_what_has(ledger: PostgresLedger) -> None:
    write(ledger, an_append("i-1"))
    PostgresSequencer(ledger, "a").sequence()
    write(ledger, an_append("i-1", 1), an_append("i-2"))
    first, second = ledger.records().streams(None, 9)
    assert first.events[0].seq == first.head.accepted_seq == 1
    assert first.events[1].seq > 1
    assert first.events[1].hash == ""
    assert second.head.accepted_seq == second.events[0].seq > 1


def test_an_acceptance_that_is_not_the_request_s_is_shown_as_none(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    write(ledger, an_append("i-1", head=a_head("i-1", "queued", ready=True)))
    PostgresSequencer(ledger, "a").sequence()
    beside().execute("UPDATE head SET accepted_seq = 77")
    [record] = ledger.records().streams(None, 9)
    assert record.head.accepted_seq == -1


def test_a_number_without_its_event_is_an_unreadable_row(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    write(ledger, an_append("i-1"))
    PostgresSequencer(ledger, "a").sequence()
    owner = beside()
    owner.execute("ALTER TABLE tool_event DISABLE TRIGGER ALL")
    owner.execute("DELETE FROM tool_event")
    [record] = ledger.records().events(None, 9)
    assert (record.place, record.event, record.payload_digest) == (1, None, "")
