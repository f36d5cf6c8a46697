"""What every stream does with what is published, read, lost and trimmed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from interlock.stream import EMPTY, EventStream, StreamTail, tail_at
from tests.support.entry import an_entry, entries
from tests.support.wait import until

Lose = Callable[[], object]


def test_a_new_stream_is_empty(stream: EventStream) -> None:
    assert stream.tail() == EMPTY
    assert stream.read(0, 10, 0) == []


def test_what_was_published_is_read_back_in_order_after_any_place(stream: EventStream) -> None:
    published = [an_entry(seq, session="früh-" + "s" * seq) for seq in range(1, 6)]
    assert stream.publish(published, after=EMPTY) == tail_at(published[-1])
    assert stream.read(0, 10, 0) == published
    assert stream.read(3, 1, 0) == [published[3]]
    assert stream.read(5, 10, 0) == []


def test_publishing_goes_on_only_from_the_last_entry(stream: EventStream) -> None:
    first = entries(1, 3)
    stream.publish(first, after=EMPTY)
    assert stream.publish([an_entry(5)], after=tail_at(an_entry(4))) == tail_at(first[-1])
    assert stream.publish(first, after=EMPTY) == tail_at(first[-1])
    assert stream.read(0, 10, 0) == first


def test_a_late_writer_to_an_emptied_stream_writes_nothing(stream: EventStream, lose: Lose) -> None:
    stream.publish(entries(1, 9), after=EMPTY)
    lose()
    assert stream.publish([an_entry(10)], after=tail_at(an_entry(9))) == EMPTY
    assert stream.publish(entries(1, 9), after=EMPTY).seq == 9


def test_another_ledgers_writer_is_refused(stream: EventStream) -> None:
    mine = an_entry(1)
    stream.publish([mine], after=EMPTY)
    theirs = StreamTail(1, "ledger-2", mine.hash)
    assert stream.publish([an_entry(2, incarnation="ledger-2")], after=theirs) == tail_at(mine)


def test_a_writer_with_another_content_for_the_last_place_is_refused(stream: EventStream) -> None:
    mine = an_entry(1)
    stream.publish([mine], after=EMPTY)
    other = tail_at(an_entry(1, content="other"))
    assert stream.publish([an_entry(2)], after=other) == tail_at(mine)
    assert tail_at(an_entry(1, content="other")) != tail_at(mine)


def test_a_restarted_stream_begins_in_the_middle(stream: EventStream) -> None:
    assert stream.restart(after=20, last=0)
    assert stream.tail() == EMPTY
    assert stream.publish([an_entry(5)], after=StreamTail(4, "", "")) == EMPTY
    assert stream.publish(entries(21, 22), after=StreamTail(20, "", "")).seq == 22
    assert [entry.seq for entry in stream.read(0, 10, 0)] == [21, 22]


def test_a_restart_is_refused_once_somebody_has_published(stream: EventStream) -> None:
    stream.publish(entries(1, 3), after=EMPTY)
    assert not stream.restart(after=0, last=0)
    assert stream.tail().seq == 3
    assert stream.restart(after=0, last=3)
    assert stream.tail() == EMPTY


def test_a_blocking_read_wakes_with_the_first_entry(stream: EventStream) -> None:
    seen: list[int] = []

    def read() -> None:
        seen.extend(entry.seq for entry in stream.read(0, 10, 20_000))

    reader = threading.Thread(target=read)
    reader.start()
    stream.publish(entries(1, 2), after=EMPTY)
    reader.join(10)
    assert seen[:1] == [1]


def test_trimming_never_passes_the_slowest_live_reader(stream: EventStream) -> None:
    stream.publish(entries(1, 100), after=EMPTY)
    stream.register("quick", 90, 60_000)
    stream.register("slow", 40, 60_000)
    assert stream.slowest() == 40
    assert stream.trim(entries_max=1_000) == 40
    assert stream.read(0, 1, 0)[0].seq == 41


def test_trimming_never_takes_the_last_entry(stream: EventStream) -> None:
    stream.publish(entries(1, 10), after=EMPTY)
    stream.register("only", 10, 60_000)
    stream.trim(entries_max=1_000)
    assert [entry.seq for entry in stream.read(0, 10, 0)] == [10]
    assert stream.publish([an_entry(11)], after=tail_at(an_entry(10))).seq == 11


def test_without_a_reader_only_the_window_counts(stream: EventStream) -> None:
    stream.publish(entries(1, 100), after=EMPTY)
    assert stream.slowest() is None
    assert stream.trim(entries_max=30) == 70
    assert stream.read(0, 1, 0)[0].seq == 71


def test_who_is_too_far_behind_does_not_hold_the_window(stream: EventStream) -> None:
    stream.publish(entries(1, 100), after=EMPTY)
    stream.register("gone", 0, 60_000)
    stream.trim(entries_max=10)
    assert stream.read(0, 1, 0)[0].seq == 91


def test_the_window_is_bounded_in_bytes_too(stream: EventStream) -> None:
    stream.publish(entries(1, 5_000), after=EMPTY)
    stream.register("gone", 0, 60_000)
    assert 2_000 < stream.trim(entries_max=10_000, bytes_max=200_000) < 5_000
    assert stream.tail().seq == 5_000


def test_a_registration_ends_with_its_lease(stream: EventStream) -> None:
    stream.publish(entries(1, 10), after=EMPTY)
    stream.register("brief", 2, 1)
    until(lambda: stream.slowest() is None, seconds=30, what="the lease is over")
    stream.register("brief", 3, 60_000)
    assert stream.slowest() == 3
