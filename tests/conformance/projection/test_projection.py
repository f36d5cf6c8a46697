"""What every projection does with what is folded into it."""

from __future__ import annotations

from dataclasses import replace

from interlock.projection import Checkpoint, Projection, StoppedSession
from interlock.reduce import REDUCER_VERSION
from interlock.state import SessionName, ToolInvocationRecord, ToolState

RECORD = ToolInvocationRecord(
    invocation_id="i-1",
    position=1,
    version=1,
    status="REQUESTED",
    phase="deciding",
    tool="echo",
    tool_version="1.0.0",
    tier="T0",
    pool="pure",
    tenant="default",
    client="local",
    subject=None,
    session="s-1",
    stage="default",
    route=None,
    cause="submission:ü",
    arguments_hash="00",
    action_digest="00",
    requested_at_us=5,
    approvers=("a", "b"),
)
STOP = StoppedSession("s-2", 3, "EVENT_UNKNOWN", "why")


def _next(checkpoint: Checkpoint, seq: int) -> Checkpoint:
    return checkpoint._replace(seq=seq, incarnation="ledger-1", hash=f"{seq:064x}")


def test_a_new_projection_has_folded_nothing(projection: Projection) -> None:
    checkpoint = projection.checkpoint()
    assert (checkpoint.seq, checkpoint.reducer_version, checkpoint.hash) == (0, REDUCER_VERSION, "")
    assert projection.sessions() == []
    assert projection.stopped() == {}
    assert projection.state("s-1").records == ()


def test_records_and_checkpoint_are_stored_together(projection: Projection) -> None:
    before = projection.checkpoint()
    other = replace(RECORD, invocation_id="i-2", position=2, session="s-0")
    assert projection.store(before, _next(before, 2), [RECORD, other], [STOP])
    assert projection.checkpoint() == _next(before, 2)
    assert projection.records(["i-1", "i-9"]) == {"i-1": RECORD}
    assert projection.sessions() == [SessionName("default", "s-0"), SessionName("default", "s-1")]
    assert projection.stopped() == {STOP.name: STOP}


def test_only_one_of_two_that_saw_the_same_checkpoint_stores(projection: Projection) -> None:
    before = projection.checkpoint()
    assert projection.store(before, _next(before, 1), [RECORD])
    assert not projection.store(before, _next(before, 2), [replace(RECORD, phase="done")], [STOP])
    assert projection.records(["i-1"]) == {"i-1": RECORD}
    assert projection.stopped() == {}
    assert projection.checkpoint() == _next(before, 1)


def test_every_part_of_the_checkpoint_is_compared(projection: Projection) -> None:
    first = projection.checkpoint()
    at = _next(first, 1)
    assert projection.store(first, at, [])
    for stale in (
        at._replace(epoch=at.epoch + 1),
        at._replace(incarnation="ledger-2"),
        at._replace(hash="ff"),
        at._replace(reducer_version=at.reducer_version + 1),
        at._replace(seq=0),
    ):
        assert not projection.store(stale, _next(at, 2), [RECORD])
    assert projection.checkpoint() == at


def test_a_record_replaces_the_one_before(projection: Projection) -> None:
    before = projection.checkpoint()
    projection.store(before, _next(before, 1), [RECORD])
    later = replace(RECORD, version=2, phase="queued", approvers=())
    assert projection.store(_next(before, 1), _next(before, 2), [later])
    assert projection.state("s-1").records == (later,)


def test_a_state_holds_its_records_in_the_order_of_their_requests(projection: Projection) -> None:
    before = projection.checkpoint()
    records = [replace(RECORD, invocation_id=f"i-{position}", position=position) for position in (30, 4, 111)]
    projection.store(before, _next(before, 111), records)
    assert [record.position for record in projection.state("s-1").records] == [4, 30, 111]


def test_more_records_than_one_query_takes_are_found(projection: Projection) -> None:
    before = projection.checkpoint()
    records = [replace(RECORD, invocation_id=f"i-{n}", position=n) for n in range(1, 1_202)]
    projection.store(before, _next(before, 1_201), records)
    assert len(projection.records([record.invocation_id for record in records])) == 1_201


def test_a_restart_forgets_everything_once(projection: Projection) -> None:
    before = projection.checkpoint()
    at = _next(before, 1)
    projection.store(before, at, [RECORD], [STOP])
    fresh = Checkpoint(at.name, 0, at.epoch + 1, REDUCER_VERSION, "ledger-2")
    assert projection.restart(at, fresh)
    assert not projection.restart(at, fresh)
    assert projection.checkpoint() == fresh
    assert projection.sessions() == []
    assert projection.stopped() == {}
    assert projection.store(fresh, _next(fresh, 1), [RECORD])


def test_the_same_session_name_in_two_tenants_is_two_sessions(projection: Projection) -> None:
    before = projection.checkpoint()
    other = replace(RECORD, invocation_id="i-2", position=2, tenant="t-2")
    stop = StoppedSession("s-1", 3, "EVENT_UNKNOWN", "why", "t-2")
    assert projection.store(before, _next(before, 2), [RECORD, other], [stop])
    assert projection.state("s-1").records == (RECORD,)
    assert projection.state("s-1", "t-2") == ToolState("s-1", (other,), "t-2")
    assert projection.state("s-1").digest != projection.state("s-1", "t-2").digest
    assert projection.sessions() == [SessionName("default", "s-1"), SessionName("t-2", "s-1")]
    assert list(projection.stopped()) == [SessionName("t-2", "s-1")]
