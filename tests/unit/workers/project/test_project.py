"""How the projector follows: without a stream, beside another, after a change of ledger or reducer."""

from __future__ import annotations

import threading

import pytest

from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.event import NewEvent
from interlock.fault import Fault, InjectedFaultError, PlannedFaults
from interlock.identifier import new_id
from interlock.memory_stream import InMemoryEventStream, InMemoryProjectionNotice
from interlock.projection import Checkpoint
from interlock.reduce import REDUCER_VERSION, fold
from interlock.stream import EMPTY
from tests.support.delivery import ScriptedStream, ShownLedger, entries_of, log_of
from tests.support.history import append_event, append_events, append_lives, life
from tests.support.wait import until
from workers.memory_projection import InMemoryProjection
from workers.project import ProjectorState, ProjectSettings, StreamProjector

QUICK = ProjectSettings(silence_seconds=0.02, poll_seconds=0.005, stream_retry_seconds=0.02)


@pytest.fixture
def ledger() -> InMemoryLedger:
    return InMemoryLedger(ManualClock())


def _assert_equal(projection: InMemoryProjection, ledger: InMemoryLedger) -> None:
    log = log_of(ledger)
    assert projection.checkpoint().seq == len(log)
    for session in {event.session for event in log}:
        assert projection.state(session).to_bytes() == fold(session, log).to_bytes()


def test_a_silent_stream_is_replaced_by_the_ledger(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 3)
    projection = InMemoryProjection()
    assert StreamProjector(ledger, InMemoryEventStream(), projection).step() == 15
    _assert_equal(projection, ledger)


def test_projection_goes_on_while_the_stream_is_away_and_hears_it_again(ledger: InMemoryLedger) -> None:
    stream, projection, stopping = InMemoryEventStream(), InMemoryProjection(), threading.Event()
    projector = StreamProjector(ledger, stream, projection, settings=QUICK)
    stream.set_away(True)
    following = threading.Thread(target=projector.run, args=(stopping,))
    following.start()
    append_lives(ledger, 4)
    until(lambda: projection.checkpoint().seq == 20, seconds=30, what="folded without a stream")
    assert projector.status().stream_away
    stream.set_away(False)
    stream.publish(entries_of(ledger), after=EMPTY)
    until(lambda: not projector.status().stream_away, seconds=30, what="the stream is heard again")
    until(lambda: stream.slowest() == 20, seconds=30, what="registered again")
    stopping.set()
    following.join(10)
    _assert_equal(projection, ledger)


def test_a_ledger_that_is_away_for_a_while_is_waited_for(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 2)
    shown, projection, stopping = ShownLedger.of(ledger), InMemoryProjection(), threading.Event()
    shown.away = True
    projector = StreamProjector(shown, InMemoryEventStream(), projection, settings=QUICK)
    following = threading.Thread(target=projector.run, args=(stopping,))
    following.start()
    shown.away = False
    until(lambda: projection.checkpoint().seq == 10, seconds=30, what="folded once it is back")
    stopping.set()
    following.join(10)


def test_batches_are_bounded_and_catching_up_does_not_wait(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 50)
    projection = InMemoryProjection()
    projector = StreamProjector(ledger, InMemoryEventStream(), projection, settings=ProjectSettings(batch=64))
    folded = [projector.step(60) for _ in range(3)]
    assert folded[1:] == [64, 64]
    assert projector.step(60) == 250 - sum(folded)
    _assert_equal(projection, ledger)


def test_of_two_projectors_one_stores_each_batch(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 200)
    projection, stopping = InMemoryProjection(), threading.Event()
    settings = ProjectSettings(batch=20, silence_seconds=0.02, poll_seconds=0.001)
    both = [StreamProjector(ledger, InMemoryEventStream(), projection, settings=settings) for _ in range(2)]
    threads = [threading.Thread(target=one.run, args=(stopping,)) for one in both]
    for thread in threads:
        thread.start()
    until(lambda: projection.checkpoint().seq == 1_000, seconds=20, what="everything is folded")
    stopping.set()
    for thread in threads:
        thread.join(10)
    _assert_equal(projection, ledger)


class _PutBack(InMemoryProjection):
    """Is put back to zero right after its checkpoint was read, once."""

    def __init__(self) -> None:
        super().__init__()
        self.due = False

    def checkpoint(self) -> Checkpoint:
        at = super().checkpoint()
        if self.due:
            self.due = False
            self.restart(at, Checkpoint(at.name, 0, at.epoch + 1, REDUCER_VERSION, at.incarnation))
        return at


def test_a_projection_that_is_put_back_under_a_projector_is_no_gap(ledger: InMemoryLedger) -> None:
    projection = _PutBack()
    projector = StreamProjector(ledger, InMemoryEventStream(), projection)
    append_lives(ledger, 2)
    projector.step()
    append_lives(ledger, 1)
    projection.due = True
    assert projector.step() == 0
    assert projector.step() == 15
    _assert_equal(projection, ledger)


def test_another_incarnation_or_an_older_reducer_begins_anew(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 3)
    projection = InMemoryProjection()
    StreamProjector(ledger, InMemoryEventStream(), projection).step()
    other = InMemoryLedger(ManualClock())
    append_lives(other, 1)
    StreamProjector(other, InMemoryEventStream(), projection).step()
    _assert_equal(projection, other)
    assert projection.checkpoint().epoch == 2
    at = projection.checkpoint()
    projection.store(at, at._replace(reducer_version=REDUCER_VERSION - 1), [])
    StreamProjector(other, InMemoryEventStream(), projection).step()
    assert projection.checkpoint().epoch == 3
    _assert_equal(projection, other)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"reducer_version": REDUCER_VERSION + 1}, ProjectorState.OUTDATED),
        ({"seq": 99}, ProjectorState.FENCED),
        ({"hash": "f" * 64}, ProjectorState.FORKED),
    ],
)
def test_a_projection_that_knows_better_stops_the_projector(
    ledger: InMemoryLedger, change: dict[str, object], state: ProjectorState
) -> None:
    append_lives(ledger, 3)
    projection = InMemoryProjection()
    StreamProjector(ledger, InMemoryEventStream(), projection).step()
    at = projection.checkpoint()
    changed = Checkpoint(**(at._asdict() | change))
    projection.store(at, changed, [])
    projector = StreamProjector(ledger, InMemoryEventStream(), projection)
    assert projector.run(threading.Event()) is state
    assert projection.checkpoint() == changed


def _event_from_tomorrow(*, moves_state: bool) -> NewEvent:
    return NewEvent("ToolInvocationBlessed", b"{}", "submission:s", "governor", moves_state)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (_event_from_tomorrow(moves_state=True), "EVENT_UNKNOWN"),
        (life("x")[3]._replace(format=2), "EVENT_UNKNOWN"),
        (life("x")[4], "ILLEGAL_MOVE"),
        (life("x")[1]._replace(payload=b'{"by":1}'), "EVENT_INVALID"),
        (life("x")[1]._replace(payload=b"no json"), "EVENT_INVALID"),
    ],
    ids=["unknown", "later format", "illegal", "incomplete", "no json"],
)
def test_what_cannot_be_folded_stops_its_session_only(
    ledger: InMemoryLedger, bad: NewEvent, code: str
) -> None:
    poisoned = new_id()
    append_events(ledger, poisoned, [life(poisoned, "s-bad")[0], bad], session="s-bad")
    append_lives(ledger, 2, sessions=1)
    after = new_id()
    append_events(ledger, after, life(after, "s-bad"), session="s-bad")
    projection = InMemoryProjection()
    projector = StreamProjector(ledger, InMemoryEventStream(), projection)
    assert projector.step() == 17
    (stop,) = projector.status().stopped
    assert (stop.session, stop.seq, stop.code) == ("s-bad", 2, code)
    assert [record.version for record in projection.state("s-bad").records] == [1]
    assert [record.status for record in projection.state("s-0").records] == ["COMPLETED"] * 2
    # A projector that starts later knows of it too.
    late = new_id()
    append_events(ledger, late, life(late, "s-bad"), session="s-bad")
    StreamProjector(ledger, InMemoryEventStream(), projection).step()
    assert len(projection.state("s-bad").records) == 1
    assert projection.checkpoint().seq == 22


def test_an_unknown_event_that_moves_nothing_is_passed_over(ledger: InMemoryLedger) -> None:
    identity = new_id()
    events = life(identity)
    append_events(ledger, identity, [*events[:3], _event_from_tomorrow(moves_state=False), *events[3:]])
    projection = InMemoryProjection()
    StreamProjector(ledger, InMemoryEventStream(), projection).step()
    assert projection.state("s-1").records[0].status == "COMPLETED"
    assert projection.stopped() == {}


def test_entries_of_another_ledger_say_nothing(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 1)
    foreign = [entry._replace(incarnation="ledger-9", hash="f" * 64) for entry in entries_of(ledger)]
    projection = InMemoryProjection()
    assert StreamProjector(ledger, ScriptedStream([foreign]), projection).step() == 5
    _assert_equal(projection, ledger)


def test_who_waits_is_told_after_the_commit(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 1)
    notice = InMemoryProjectionNotice()
    StreamProjector(ledger, InMemoryEventStream(), InMemoryProjection(), notice=notice).step()
    assert notice.projected() == 5


@pytest.mark.parametrize("point", ["project.after_read", "project.before_commit", "project.after_commit"])
def test_a_crash_at_any_point_folds_everything_once(ledger: InMemoryLedger, point: str) -> None:
    append_event(ledger, "i-1", life("i-1")[0], version=0)
    projection = InMemoryProjection()
    faults = PlannedFaults((Fault(point, 1, "raise"),), None)
    with pytest.raises(InjectedFaultError):
        StreamProjector(ledger, InMemoryEventStream(), projection, faults).step()
    assert projection.checkpoint().seq == (1 if point == "project.after_commit" else 0)
    append_events(ledger, "i-1", life("i-1")[1:], version=1)
    StreamProjector(ledger, InMemoryEventStream(), projection).step()
    _assert_equal(projection, ledger)
