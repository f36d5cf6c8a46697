"""Appending: all or none a stream, at the version judged, in dense order, under a chain."""

from __future__ import annotations

import threading

import pytest

from governance.append import ANY_VERSION
from governance.chain import genesis, link
from governance.ledger import Append, Due, Head, Ledger, head_with
from interlock.canonical import sha256_hex
from interlock.clock import ManualClock
from interlock.event import Stream, evidence_stream, invocation_stream
from tests.support.ledger import a_head, an_append, an_event, head_of, write


def test_a_new_stream_begins_at_version_one_and_is_read_back_as_written(
    ledger: Ledger, clock: ManualClock
) -> None:
    assert (
        write(ledger, an_append("i-1", events=[an_event(payload=b'{"a":1}'), an_event("ApprovalGranted")]))
        == set()
    )
    with ledger.read() as view:
        first, second = view.events([invocation_stream("i-1")])[invocation_stream("i-1")]
    assert first[:13] == (
        1, "invocation", "i-1", 1, "ToolInvocationRequested", 1, clock.now_us(), "submission:s-1", "governor",
        "default", "s-1", True, b'{"a":1}',
    )  # fmt: skip
    assert (second.seq, second.version, second.type) == (2, 2, "ApprovalGranted")


def test_sequence_numbers_are_dense_and_every_hash_follows_from_the_one_before(ledger: Ledger) -> None:
    for number in range(5):
        write(ledger, an_append(f"i-{number}", events=[an_event(), an_event("ApprovalGranted")]))
    with ledger.read() as view:
        events = view.range(0, 100)
    assert [event.seq for event in events] == list(range(1, 11))
    previous = genesis(ledger.info.incarnation)
    for event in events:
        assert event.hash == link(previous, event, sha256_hex(event.payload))
        previous = event.hash


def test_a_stream_that_moved_on_loses_and_nothing_of_it_is_written(ledger: Ledger) -> None:
    write(ledger, an_append("i-1"))
    late = an_append("i-1", events=[an_event(), an_event()], head=a_head("i-1", "queued"), due="release")
    assert write(ledger, late, an_append("i-2")) == {invocation_stream("i-1")}
    with ledger.read() as view:
        assert [(event.stream_id, event.version) for event in view.range(0, 100)] == [("i-1", 1), ("i-2", 1)]
        assert view.due_of([invocation_stream("i-1")])[invocation_stream("i-1")].what == "decide"
    assert head_of(ledger, "i-1").phase == "deciding"


@pytest.mark.parametrize("expected", [0, 2, 3])
def test_only_the_version_that_was_judged_is_appended_at(ledger: Ledger, expected: int) -> None:
    write(ledger, an_append("i-1"))
    assert write(ledger, an_append("i-1", expected)) == {invocation_stream("i-1")}
    assert write(ledger, an_append("i-1", 1)) == set()


def test_streams_of_one_batch_are_written_in_one_order_whatever_order_they_came_in(ledger: Ledger) -> None:
    write(ledger, an_append("i-3"), an_append("i-1"), an_append("i-2"))
    with ledger.read() as view:
        assert [event.stream_id for event in view.range(0, 10)] == ["i-1", "i-2", "i-3"]


def test_evidence_is_appended_at_whatever_version_its_stream_has(ledger: Ledger) -> None:
    stream = evidence_stream("i-1")
    for _ in range(3):
        noted = Append(stream, ANY_VERSION, [an_event("SandboxViolation")], tenant="default", session="s-1")
        assert write(ledger, noted) == set()
    with ledger.read() as view:
        events = view.events([stream])[stream]
        assert [event.version for event in events] == [1, 2, 3]
        assert {(event.tenant, event.session) for event in events} == {("default", "s-1")}
        assert view.heads([stream])[stream].version == 3


def test_two_appends_for_one_stream_in_one_call_are_a_mistake(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="two appends"), ledger.write() as transaction:
        transaction.append([an_append("i-1"), an_append("i-1", 1)])


def test_an_append_without_events_is_a_mistake(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="without events"), ledger.write() as transaction:
        transaction.append([an_append("i-1", events=[])])


def test_a_stream_can_be_appended_to_again_in_one_transaction(ledger: Ledger) -> None:
    with ledger.write() as transaction:
        assert transaction.append([an_append("i-1")]) == set()
        queued = head_with(
            transaction.heads([invocation_stream("i-1")])[invocation_stream("i-1")], phase="queued"
        )
        assert transaction.append([an_append("i-1", 1, head=queued)]) == set()
        assert transaction.append([an_append("i-1", 1)]) == {invocation_stream("i-1")}
    assert (head_of(ledger, "i-1").version, head_of(ledger, "i-1").phase) == (2, "queued")


def test_the_head_is_what_was_given_with_version_time_and_order_set_by_the_ledger(
    ledger: Ledger, clock: ManualClock
) -> None:
    write(ledger, an_append("i-0"))
    given = a_head(
        "i-1", "queued", version=77, at_us=5, accepted_seq=99, data="{}", tool="echo", contract_digest="c",
        priority=2, ready=True, attempt=3, nonce="n", boot="b", claimed_us=4, started=True, action_digest="a",
        request_digest="r", permit_until_us=8, epoch=6, deadline_us=9, may_repeat=True, guards_twins=True,
        external=True, batchable=True, alone=True, cancel=True,
    )  # fmt: skip
    write(ledger, an_append("i-1", head=given))
    assert head_of(ledger, "i-1") == head_with(given, version=1, at_us=clock.now_us(), accepted_seq=2)
    other = head_with(given, pool="fs", tool="fs.read", priority=7, ready=False, phase="running")
    write(ledger, an_append("i-1", 1, head=other))
    assert head_of(ledger, "i-1") == head_with(other, version=2, at_us=clock.now_us(), accepted_seq=2)


def test_without_a_head_the_one_that_stands_moves_on(ledger: Ledger) -> None:
    write(ledger, an_append("i-1", head=a_head("i-1", "queued", tool="echo")))
    write(ledger, an_append("i-1", 1)._replace(head=None))
    assert (head_of(ledger, "i-1").tool, head_of(ledger, "i-1").version) == ("echo", 2)


def test_a_stream_that_is_no_invocation_has_no_order_of_acceptance(ledger: Ledger) -> None:
    stream = Stream("session", "s-1")
    write(
        ledger,
        Append(stream, 0, [an_event("SessionOpened")], Head(*stream, phase="open", data='{"mode":"edit"}')),
    )
    with ledger.read() as view:
        assert view.heads([stream])[stream].accepted_seq == 0
        assert view.heads([stream])[stream].data == '{"mode":"edit"}'


def test_time_never_goes_back_within_a_stream(ledger: Ledger, clock: ManualClock) -> None:
    write(ledger, an_append("i-1"))
    before = clock.now_us()
    clock.advance(-7_200)
    write(ledger, an_append("i-1", 1), an_append("i-2"))
    with ledger.read() as view:
        assert [event.at_us for event in view.range(0, 10)] == [before, before, clock.now_us()]


def test_the_due_row_is_moved_and_removed_with_the_events(ledger: Ledger) -> None:
    stream = invocation_stream("i-1")
    write(ledger, an_append("i-1", due="decide", due_us=10))
    write(ledger, an_append("i-1", 1, due="lease", due_us=20))
    with ledger.read() as view:
        assert view.due_of([stream]) == {stream: Due("invocation", "i-1", "lease", 20)}
    write(ledger, an_append("i-1", 2, due=None))
    with ledger.read() as view:
        assert view.due_of([stream]) == {}


def write_and_fail(ledger: Ledger) -> None:
    def write_then_raise() -> None:
        with ledger.write() as transaction:
            transaction.append([an_append("i-1")])
            transaction.raise_epoch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_then_raise()


def test_an_exception_leaves_nothing_behind(ledger: Ledger) -> None:
    write_and_fail(ledger)
    with ledger.read() as view:
        assert (view.last_seq(), view.epoch(), view.counts()) == (0, 1, {})
    write(ledger, an_append("i-1"))
    with ledger.read() as view:
        assert view.last_seq() == 1


def test_what_lost_by_a_failed_transaction_is_known_no_longer(ledger: Ledger) -> None:
    write_and_fail(ledger)
    assert write(ledger, an_append("i-1", 1)) == {invocation_stream("i-1")}


def test_a_reading_does_not_change_under_its_reader(ledger: Ledger) -> None:
    write(ledger, an_append("i-1"))
    with ledger.read() as view:
        assert view.last_seq() == 1
        write(ledger, an_append("i-2"))
        assert view.last_seq() == 1


def test_a_second_write_inside_a_write_of_the_same_thread_is_a_mistake(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError), ledger.write(), ledger.write():
        pass


def test_many_threads_at_one_version_have_one_winner(ledger: Ledger) -> None:
    write(ledger, an_append("i-1"))
    start, lock = threading.Barrier(16), threading.Lock()
    winners: list[int] = []

    def race(number: int) -> None:
        claim = an_append("i-1", 1, head=a_head("i-1", "running", nonce=str(number)))
        start.wait(timeout=10)
        if not write(ledger, claim):
            with lock:
                winners.append(number)

    racers = [threading.Thread(target=race, args=(number,)) for number in range(16)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=30)
    assert len(winners) == 1
    assert head_of(ledger, "i-1").nonce == str(winners[0])


def test_payloads_are_bytes_and_come_back_as_they_are(ledger: Ledger) -> None:
    payload = b'{"a":"\\u0000 \xc3\xa9"}' + bytes(range(256))
    write(ledger, an_append("i-1", events=[an_event(payload=payload)]))
    with ledger.read() as view:
        assert view.range(0, 1)[0].payload == payload


def test_a_large_batch_of_new_and_old_streams_is_one_transaction(ledger: Ledger) -> None:
    ids = [f"i-{number:04}" for number in range(1_200)]
    write(ledger, *(an_append(one) for one in ids[:600]))
    lost = write(ledger, *(an_append(one, 0) for one in ids))
    assert lost == {invocation_stream(one) for one in ids[:600]}
    with ledger.read() as view:
        assert len(view.heads(map(invocation_stream, ids))) == 1_200
        assert view.last_seq() == 1_200
