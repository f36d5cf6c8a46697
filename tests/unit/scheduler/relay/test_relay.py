"""What the relay publishes, when it doubts, and when it stops."""

from __future__ import annotations

import threading

import pytest

from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.errors import LedgerFencedError
from interlock.event import StoredEvent
from interlock.fault import Fault, InjectedFaultError, PlannedFaults
from interlock.memory_stream import InMemoryEventStream, ManualWaker
from interlock.stream import EMPTY, StreamTail
from scheduler.relay import ROLE, Relay, RelaySettings, RelayState, SequencedOnAppend, fence_of
from tests.support.delivery import ShownLedger, entries_of, log_of
from tests.support.history import append_lives
from tests.support.wait import until

QUICK = RelaySettings(poll_seconds=0.01)


class _Stopped(threading.Event):
    """Ends a run after so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def is_set(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@pytest.fixture
def ledger() -> InMemoryLedger:
    ledger = InMemoryLedger(ManualClock())
    append_lives(ledger, 4)
    return ledger


@pytest.fixture
def stream() -> InMemoryEventStream:
    return InMemoryEventStream()


def _relay(ledger: InMemoryLedger | ShownLedger, stream: InMemoryEventStream, **options: object) -> Relay:
    return Relay(ledger, stream, ManualWaker(), **options)  # type: ignore[arg-type] # each test names its own


def _seqs(stream: InMemoryEventStream) -> list[int]:
    return [entry.seq for entry in stream.read(0, 10_000, 0)]


def test_what_is_committed_is_published_once_in_order(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    relay = _relay(ledger, stream, settings=RelaySettings(batch=8))
    assert [relay.step() for _ in range(4)] == [8, 8, 4, 0]
    assert stream.read(0, 100, 0) == entries_of(ledger)
    append_lives(ledger, 1)
    assert relay.step() == 5
    assert relay.state is RelayState.PUBLISHING


def test_a_new_relay_goes_on_where_the_stream_ends(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    _relay(ledger, stream).step()
    append_lives(ledger, 1)
    assert _relay(ledger, stream).step() == 5
    assert _seqs(stream) == list(range(1, 26))


def test_an_empty_ledger_and_an_empty_stream_are_level(stream: InMemoryEventStream) -> None:
    relay = _relay(InMemoryLedger(ManualClock()), stream)
    assert relay.step() == 0
    assert relay.state is RelayState.PUBLISHING


def test_an_emptied_stream_is_refilled(ledger: InMemoryLedger, stream: InMemoryEventStream) -> None:
    relay = _relay(ledger, stream)
    relay.step()
    stream.lose()
    append_lives(ledger, 1)
    assert relay.step() == 0  # refused: the stream does not end where it should
    relay.step()
    assert _seqs(stream) == list(range(1, 26))


def test_a_refill_begins_at_the_window_or_the_slowest_live_reader_whichever_is_younger(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    _relay(ledger, stream, settings=RelaySettings(window_entries=5)).step()
    assert _seqs(stream) == [16, 17, 18, 19, 20]
    stream.lose()
    stream.register("projector", 18, 60_000)
    _relay(ledger, stream, settings=RelaySettings(window_entries=5)).step()
    assert _seqs(stream) == [19, 20]
    stream.lose()
    stream.register("ahead of everything", 1_000, 60_000)
    _relay(ledger, stream).step()
    assert _seqs(stream) == [20]  # never empty: what follows is guarded by the last entry


def test_a_late_relay_changes_nothing(ledger: InMemoryLedger, stream: InMemoryEventStream) -> None:
    zombie, leader = _relay(ledger, stream), _relay(ledger, stream)
    zombie.step()
    append_lives(ledger, 1)
    leader.step()
    append_lives(ledger, 1)
    leader.step()
    zombie.step()  # publishes after 20, where the stream ends at 30
    assert _seqs(stream) == list(range(1, 31))
    stream.lose()
    append_lives(ledger, 1)
    zombie.step()
    assert _seqs(stream) in ([], list(range(1, 36)))
    for relay in (leader, zombie, leader):
        relay.step()
    assert _seqs(stream) == list(range(1, 36))


def test_a_ledger_that_went_back_is_fenced_and_never_overwrites(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    _relay(ledger, stream).step()
    shown = ShownLedger.of(ledger, shown=set(range(1, 16)))
    relay = _relay(shown, stream)
    assert relay.run(threading.Event()) is RelayState.FENCED
    assert relay.fence is not None
    assert relay.fence == fence_of(shown, stream)
    assert (relay.fence.tail.seq, relay.fence.last_seq) == (20, 15)
    shown.shown = set(range(1, 21))
    assert relay.step() == 0  # for ever: it may have grown other events meanwhile
    assert len(_seqs(stream)) == 20


def test_another_ledger_and_another_content_are_fenced(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    _relay(ledger, stream).step()
    other = InMemoryLedger(ManualClock())
    append_lives(other, 9)
    assert _relay(other, stream).run(threading.Event()) is RelayState.FENCED
    log = log_of(ledger)
    changed = ShownLedger([*log[:-1], log[-1]._replace(hash="f" * 64)], ledger.info)
    assert _relay(changed, stream).run(threading.Event()) is RelayState.FENCED
    assert fence_of(ledger, stream) is None


def test_a_stream_that_ends_with_a_foreign_entry_is_begun_anew(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    foreign = entries_of(ledger)[0]._replace(seq=999, incarnation="", hash="")
    stream.publish([foreign], after=EMPTY)
    relay = _relay(ledger, stream)
    assert relay.step() == 20
    assert _seqs(stream) == list(range(1, 21))


def test_broker_and_ledger_may_be_away_for_a_while(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    shown = ShownLedger.of(ledger)
    relay = _relay(shown, stream)
    stream.set_away(True)
    assert relay.step() == 0
    assert relay.state == "BROKER_UNAVAILABLE"
    stream.set_away(False)
    shown.away = True
    assert relay.step() == 0
    assert relay.state == "LEDGER_UNAVAILABLE"
    shown.away = False
    assert relay.step() == 20
    assert relay.state == "publishing"


@pytest.mark.parametrize("point", ["relay.before_publish", "relay.after_publish"])
def test_a_crash_at_any_point_publishes_everything_once(
    ledger: InMemoryLedger, stream: InMemoryEventStream, point: str
) -> None:
    relay = _relay(ledger, stream, faults=PlannedFaults((Fault(point, 1, "raise"),), None))
    with pytest.raises(InjectedFaultError):
        relay.step()
    while relay.step():
        pass
    assert _seqs(stream) == list(range(1, 21))


def test_run_publishes_when_it_is_woken_and_refills_when_it_is_not(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    waker, stopping = ManualWaker(), threading.Event()
    relay = Relay(ledger, stream, waker, settings=QUICK)
    running = threading.Thread(target=relay.run, args=(stopping,))
    running.start()
    until(lambda: stream.tail().seq == 20, seconds=30, what="what was there is published")
    append_lives(ledger, 1)
    waker.wake(ROLE)
    until(lambda: stream.tail().seq == 25, seconds=30, what="what came is published")
    stream.lose()
    until(lambda: stream.tail().seq == 25, seconds=30, what="refilled though nobody said a word")
    stopping.set()
    running.join(10)
    assert relay.state is RelayState.PUBLISHING


def test_run_trims_behind_its_readers(ledger: InMemoryLedger, stream: InMemoryEventStream) -> None:
    stream.register("projector", 12, 60_000)
    append_lives(ledger, 1)
    relay = _relay(ledger, stream, settings=RelaySettings(batch=10, trim_every_entries=20, poll_seconds=0.01))
    stream.publish(entries_of(ledger)[:5], after=EMPTY)
    relay.run(_Stopped(4))
    assert _seqs(stream) == list(range(13, 26))


def test_the_head_is_anchored_by_number_and_at_the_end(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    anchored: list[tuple[int, str]] = []
    relay = _relay(
        ledger,
        stream,
        anchor=lambda seq, digest: anchored.append((seq, digest)),
        settings=RelaySettings(batch=5, anchor_every_events=10, poll_seconds=0.001),
    )
    relay.run(_Stopped(2))
    assert anchored == [(20, log_of(ledger)[-1].hash)]
    append_lives(ledger, 1)
    relay.run(_Stopped(1))
    assert anchored[-1] == (25, log_of(ledger)[-1].hash)
    assert len(anchored) == 2


def test_an_anchor_that_cannot_be_written_is_tried_again(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    tries: list[int] = []

    def anchor(seq: int, digest: str) -> None:
        tries.append(seq)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")

    relay = _relay(ledger, stream, anchor=anchor, settings=RelaySettings(poll_seconds=0.001))
    relay.run(_Stopped(1))
    relay.run(_Stopped(1))
    assert tries == [20, 20]


def test_a_sequencer_that_has_more_is_asked_again_at_once(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    """Rows above the horizon are committed: nobody sleeps over them."""
    shown = ShownLedger.of(ledger, shown=set())

    class _Horizon(SequencedOnAppend):
        def sequence(self) -> bool:
            shown.shown.add(len(shown.shown) + 1)
            return len(shown.shown) < 20

    relay = _relay(shown, stream, sequencer=_Horizon(), settings=RelaySettings(poll_seconds=60))
    relay.run(_Stopped(20))
    assert _seqs(stream) == list(range(1, 21))


def test_what_the_sequencer_placed_itself_is_published_without_asking_the_ledger(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    log = log_of(ledger)
    shown = ShownLedger.of(ledger, shown={1, 2, 3})

    class _Knows:
        def sequence(self) -> bool:
            return False

        def recent(self, after_seq: int, limit: int) -> list[StoredEvent] | None:
            known = [event._replace(payload=b"") for event in log if event.seq > max(2, after_seq)]
            return known[:limit] if after_seq >= 2 else None

    relay = _relay(shown, stream, sequencer=_Knows(), settings=RelaySettings(batch=2))
    while relay.step():
        pass
    assert stream.read(0, 10_000, 0) == entries_of(ledger)


def test_a_log_of_a_later_life_of_the_cluster_ends_the_relay_fenced(
    ledger: InMemoryLedger, stream: InMemoryEventStream
) -> None:
    class _Restored(SequencedOnAppend):
        def sequence(self) -> bool:
            raise LedgerFencedError("it was restored from a dump")

    relay = _relay(ledger, stream, sequencer=_Restored(), settings=QUICK)
    assert relay.run(_Stopped(5)) is RelayState.FENCED
    assert relay.fence is not None
    assert relay.fence.reason == "it was restored from a dump"
    assert _seqs(stream) == []


def test_the_position_of_a_restarted_stream_is_a_number_only() -> None:
    stream = InMemoryEventStream()
    stream.restart(after=4, last=0)
    assert stream.publish([], after=StreamTail(4, "", "")) == EMPTY
