"""Every question of the port has the same answer whatever store it lies in."""

from __future__ import annotations

import pytest

from governance.append import KEY_LIFE_US
from governance.ledger import Append, Boot, Due, Head, KeyName, KeyOwner, Ledger, StageKey, head_with
from interlock.clock import ManualClock
from interlock.errors import ConflictError, LedgerClosedError
from interlock.event import Stream, invocation_stream
from interlock.fault import InjectedFaultError
from tests.conformance.ledger.conftest import OpenLedger
from tests.support.ledger import a_head, an_append, an_event, head_of, write


def ids(heads: list[Head]) -> list[str]:
    return [head.id for head in heads]


def test_an_empty_ledger_answers_every_question(ledger: Ledger) -> None:
    stream, stage = invocation_stream("i-1"), StageKey("t", "s", "g")
    with ledger.read() as view:
        assert view.epoch() == 1
        assert view.last_seq() == 0
        assert not view.heads([stream]) | view.events([stream]) | view.due_of([stream])
        assert not [*view.range(0, 10), *view.session_events("s"), *view.due(2**60, 10), *view.boots()]
        assert view.heads_of("invocation", limit=5) == view.next_ready("pure", 5) == []
        assert view.stage_lines([stage]) == {stage: []}
        assert view.counts() == view.published_unclaimed() == {}
        assert not view.twins(["a"]) | view.denials(["a"]) | view.contracts(["a"])
        assert view.key_owners([KeyName("t", "c", "k")]) == {}


def test_no_question_about_nothing_is_an_error(ledger: Ledger) -> None:
    with ledger.write() as view:
        assert not [*view.heads([]), *view.events([]), *view.twins([]), *view.stage_lines([])]
        assert view.append([]) == set()
        view.mark_ready([])
        view.mark_published([], [])


def test_range_gives_the_events_after_a_number_in_order(ledger: Ledger) -> None:
    write(ledger, *(an_append(f"i-{number}") for number in range(6)))
    with ledger.read() as view:
        assert [event.seq for event in view.range(2, 3)] == [3, 4, 5]
        assert view.range(6, 3) == []
        assert view.range(0, 0) == []


def test_session_events_are_those_of_one_session_in_order(ledger: Ledger) -> None:
    for number in range(6):
        write(ledger, an_append(f"i-{number}", head=a_head(f"i-{number}", session=f"s-{number % 2}")))
    with ledger.read() as view:
        assert [event.seq for event in view.session_events("s-1")] == [2, 4, 6]
        assert [event.seq for event in view.session_events("s-1", after_seq=2, limit=1)] == [4]


def test_session_events_are_those_of_one_tenant(ledger: Ledger) -> None:
    write(ledger, an_append("i-1"), an_append("i-2", head=a_head("i-2", tenant="t-2")))
    with ledger.read() as view:
        assert [event.stream_id for event in view.session_events("s-1", "t-2")] == ["i-2"]
        assert [event.stream_id for event in view.session_events("s-1", a_head("i-1").tenant)] == ["i-1"]


def test_a_stream_belongs_to_the_session_that_it_began_in(ledger: Ledger) -> None:
    write(ledger, an_append("i-1"))
    write(ledger, an_append("i-1", 1)._replace(session="s-9"))
    with ledger.read() as view:
        assert [event.session for event in view.session_events("s-1")] == ["s-1", "s-9"]
        assert view.session_events("s-9") == []


def test_an_event_carries_the_session_of_its_head_unless_told_another(ledger: Ledger) -> None:
    write(ledger, an_append("i-1")._replace(session="s-9", tenant="t-9"), an_append("i-2"))
    with ledger.read() as view:
        assert [(e.tenant, e.session) for e in view.range(0, 9)] == [("t-9", "s-9"), ("default", "s-1")]


def test_heads_of_invocations_come_by_acceptance_and_by_phase_and_session(ledger: Ledger) -> None:
    write(ledger, an_append("i-9", head=a_head("i-9", "queued", session="s-2")))
    write(ledger, an_append("i-1", head=a_head("i-1", "queued")))
    write(ledger, an_append("i-5", head=a_head("i-5", "done"), due=None))
    with ledger.read() as view:
        assert ids(view.heads_of("invocation", limit=10)) == ["i-9", "i-1", "i-5"]
        assert ids(view.heads_of("invocation", limit=2)) == ["i-9", "i-1"]
        assert ids(view.heads_of("invocation", phase="queued", limit=10)) == ["i-9", "i-1"]
        assert ids(view.heads_of("invocation", phase="done", limit=10)) == ["i-5"]
        assert ids(view.heads_of("invocation", session="s-1", limit=10)) == ["i-1", "i-5"]
        assert ids(view.heads_of("invocation", session="s-1", phase="queued", limit=10)) == ["i-1"]
        assert view.counts() == {"queued": 2, "done": 1}


def test_heads_of_another_kind_come_by_id(ledger: Ledger) -> None:
    for name, phase in (("b", "open"), ("a", "closed"), ("c", "open")):
        stream = Stream("session", name)
        write(
            ledger, Append(stream, 0, [an_event("SessionOpened")], Head(*stream, phase=phase, session=name))
        )
    with ledger.read() as view:
        assert ids(view.heads_of("session", limit=10)) == ["a", "b", "c"]
        assert ids(view.heads_of("session", phase="open", limit=10)) == ["b", "c"]
        assert ids(view.heads_of("session", session="c", limit=10)) == ["c"]
        assert view.counts() == {}


def test_a_stage_line_holds_the_first_open_invocations_of_exactly_that_stage(ledger: Ledger) -> None:
    for one, columns in (
        ("i-3", {}), ("i-1", {}), ("i-2", {}), ("i-4", {"stage": "g-2"}), ("i-5", {"tenant": "other"}),
    ):  # fmt: skip
        write(ledger, an_append(one, head=a_head(one, **columns)))
    mine, other = StageKey("default", "s-1", "g-1"), StageKey("default", "s-1", "g-2")
    with ledger.read() as view:
        lines = view.stage_lines([mine, other])
        assert {stage: ids(heads) for stage, heads in lines.items()} == {mine: ["i-3", "i-1"], other: ["i-4"]}
        assert ids(view.stage_lines([mine], limit=10)[mine]) == ["i-3", "i-1", "i-2"]
    write(ledger, an_append("i-3", 1, head=a_head("i-3", "done"), due=None))
    with ledger.read() as view:
        assert ids(view.stage_lines([mine])[mine]) == ["i-1", "i-2"]


@pytest.mark.parametrize(
    ("phase", "guards", "found"),
    [
        ("running", True, True),
        ("reconciliation_required", True, True),
        ("queued", True, True),
        ("awaiting_approval", True, False),
        ("done", True, False),
        ("running", False, False),
    ],
)
def test_a_twin_may_run_runs_or_is_unresolved_and_its_tool_guards_twins(
    ledger: Ledger, phase: str, guards: bool, found: bool
) -> None:
    head = a_head("i-1", phase, guards_twins=guards, action_digest="a-1")
    write(ledger, an_append("i-1", head=head))
    with ledger.read() as view:
        assert view.twins(["a-1", "a-2"]) == ({"a-1": "i-1"} if found else {})


def test_the_next_ready_come_by_priority_and_then_by_acceptance(ledger: Ledger) -> None:
    rows = {
        "i-1": ("queued", True, 4, "pure"),
        "i-2": ("queued", True, 0, "pure"),
        "i-3": ("retry_wait", True, 4, "pure"),
        "i-4": ("queued", False, 0, "pure"),
        "i-5": ("running", True, 0, "pure"),
        "i-6": ("queued", True, 0, "fs"),
    }
    for one, (phase, ready, priority, pool) in rows.items():
        write(ledger, an_append(one, head=a_head(one, phase, ready=ready, priority=priority, pool=pool)))
    with ledger.read() as view:
        assert ids(view.next_ready("pure", 10)) == ["i-2", "i-1", "i-3"]
        assert ids(view.next_ready("pure", 1)) == ["i-2"]
        assert view.published_unclaimed() == {}


def test_what_is_published_is_counted_until_it_is_claimed(ledger: Ledger, clock: ManualClock) -> None:
    ready = {one: a_head(one, "queued", ready=True) for one in ("i-1", "i-2", "i-3")}
    write(ledger, *(an_append(one, head=head) for one, head in ready.items()))
    with ledger.write() as transaction:
        transaction.mark_published(["i-1", "i-2"], [Due("invocation", "i-1", "release", 99)])
        assert ids(transaction.next_ready("pure", 10)) == ["i-3"]
        published = transaction.heads([invocation_stream("i-1")])[invocation_stream("i-1")]
    assert published == head_with(
        ready["i-1"], version=1, at_us=clock.now_us(), accepted_seq=1, published_us=clock.now_us()
    )
    with ledger.read() as view:
        assert view.published_unclaimed() == {"pure": 2}
        assert view.due_of([invocation_stream("i-1")])[invocation_stream("i-1")].at_us == 99
    write(ledger, an_append("i-1", 1, head=head_with(published, phase="running")))
    with ledger.read() as view:
        assert view.published_unclaimed() == {"pure": 1}


def test_ready_is_set_once_and_what_was_published_before_may_be_published_again(ledger: Ledger) -> None:
    write(ledger, an_append("i-1", head=a_head("i-1", "queued", published_us=5)))
    with ledger.write() as transaction:
        assert not transaction.heads([invocation_stream("i-1")])[invocation_stream("i-1")].ready
        transaction.mark_ready(["i-1", "nobody"])
        assert ids(transaction.next_ready("pure", 9)) == ["i-1"]
        transaction.mark_published(["i-1", "nobody"], [])
        transaction.mark_ready(["i-1"])
        assert transaction.next_ready("pure", 9) == []
    assert head_of(ledger, "i-1").ready


def test_what_falls_due_comes_oldest_first(ledger: Ledger) -> None:
    for one, moment in (("i-1", 30), ("i-2", 10), ("i-3", 20)):
        write(ledger, an_append(one, due_us=moment))
    with ledger.write() as transaction:
        transaction.set_due(Due("invocation", "i-3", "lease", 40))
    with ledger.read() as view:
        assert [due.id for due in view.due(30, 10)] == ["i-2", "i-1"]
        assert view.due(2**60, 1) == [Due("invocation", "i-2", "decide", 10)]
        assert view.due(9, 10) == []


def test_a_key_is_bound_to_its_first_owner(ledger: Ledger) -> None:
    name = KeyName("default", "local", "k-1")
    with ledger.write() as transaction:
        transaction.bind_key(name, KeyOwner("i-1", "r-1"))
        transaction.append([an_append("i-1")])
    with ledger.read() as view:
        others = [name._replace(client="other"), name._replace(tenant="other")]
        assert view.key_owners([name, *others]) == {name: KeyOwner("i-1", "r-1")}
    with pytest.raises(ConflictError), ledger.write() as transaction:
        transaction.bind_key(name, KeyOwner("i-2", "r-2"))
    with ledger.read() as view:
        assert view.key_owners([name]) == {name: KeyOwner("i-1", "r-1")}


def test_a_key_lives_thirty_days_beyond_its_invocation(ledger: Ledger, clock: ManualClock) -> None:
    name = KeyName("default", "local", "k-1")
    with ledger.write() as transaction:
        transaction.append([an_append("i-1")])
        transaction.bind_key(name, KeyOwner("i-1", "r-1"))
    clock.advance(KEY_LIFE_US / 1e6 + 1)
    with ledger.read() as view:
        assert name in view.key_owners([name]), "its invocation is not final"
    write(ledger, an_append("i-1", 1, head=a_head("i-1", "done"), due=None))
    clock.advance(KEY_LIFE_US / 1e6 - 1)
    with ledger.read() as view:
        assert name in view.key_owners([name])
    clock.advance(2)
    with ledger.write() as transaction:
        assert transaction.key_owners([name]) == {}
        transaction.bind_key(name, KeyOwner("i-2", "r-2"))
    with ledger.read() as view:
        assert view.key_owners([name]) == {name: KeyOwner("i-2", "r-2")}


def test_a_denial_stands_as_it_was_first_said(ledger: Ledger) -> None:
    with ledger.write() as transaction:
        transaction.deny("a-1", "i-1")
        transaction.deny("a-1", "i-2")
    with ledger.read() as view:
        assert view.denials(["a-1", "a-2"]) == {"a-1": "i-1"}


def test_a_contract_is_kept_once(ledger: Ledger) -> None:
    for body in (b"first", b"second"):
        with ledger.write() as transaction:
            transaction.put_contract("d-1", body)
    with ledger.read() as view:
        assert view.contracts(["d-1", "d-2"]) == {"d-1": b"first"}


def test_the_control_epoch_only_grows(ledger: Ledger) -> None:
    with ledger.write(["session:s-1"], control=True) as transaction:
        assert [transaction.raise_epoch(), transaction.raise_epoch(), transaction.epoch()] == [2, 3, 3]
    with ledger.read() as view:
        assert view.epoch() == 3


def test_a_boot_beats_until_it_stops(ledger: Ledger) -> None:
    boot = Boot("b-1", "pool", "host", 7, 0, 100, False)
    for beat in (boot, boot._replace(boot_id="b-0"), boot._replace(counter=1)):
        with ledger.write() as transaction:
            transaction.beat(beat)
    with ledger.read() as view:
        assert view.boots() == [boot._replace(boot_id="b-0"), boot._replace(counter=1)]
    with ledger.write() as transaction:
        transaction.beat(boot._replace(stopped=True))
    with ledger.read() as view:
        assert [boot.boot_id for boot in view.boots()] == ["b-0"]


def test_the_store_says_what_time_it_is(ledger: Ledger, clock: ManualClock) -> None:
    clock.advance(5)
    with ledger.read() as view:
        assert view.now_us == clock.now_us()


def test_the_ledger_has_an_incarnation_and_settings(open_ledger: OpenLedger) -> None:
    one, other = open_ledger(None), open_ledger(None)
    assert one.info.incarnation != other.info.incarnation
    assert one.settings()


def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerClosedError), ledger.read():
        pass
    with pytest.raises(LedgerClosedError), ledger.write():
        pass


class FaultAt:
    """Raises at one point."""

    def __init__(self, point: str) -> None:
        self.point = point

    def reach(self, point: str) -> None:
        if point == self.point:
            raise InjectedFaultError(point)


@pytest.mark.parametrize(("point", "kept"), [("ledger.before_commit", 0), ("ledger.after_commit", 1)])
def test_a_fault_before_the_commit_undoes_and_one_after_it_does_not(
    open_ledger: OpenLedger, point: str, kept: int
) -> None:
    ledger = open_ledger(FaultAt(point))
    with pytest.raises(InjectedFaultError):
        write(ledger, an_append("i-1"))
    with ledger.read() as view:
        assert view.last_seq() == kept


def test_a_transaction_sees_what_it_appended_beside_what_stood_before(
    ledger: Ledger, clock: ManualClock
) -> None:
    def queued(identifier: str, **columns: object) -> Append:
        return an_append(identifier, head=a_head(identifier, "queued", ready=True, **columns))

    write(ledger, queued("i-old", priority=4), queued("i-last", priority=9))
    with ledger.write() as view:
        view.append([queued("i-new", priority=4), queued("i-first", priority=0), queued("i-fs", pool="fs")])
        view.append([an_append("i-other")])
        assert ids(view.next_ready("pure", 3)) == ["i-first", "i-old", "i-new"]
        view.mark_published(["i-first", "i-old"], [Due("invocation", "i-first", "release", 7)])
        assert ids(view.next_ready("pure", 3)) == ["i-new", "i-last"]
        assert view.published_unclaimed() == {"pure": 2}
        assert ids(view.next_ready("fs", 3)) == ["i-fs"]
        view.set_due(Due("invocation", "i-other", "release", 8))
        other = invocation_stream("i-other")
        assert view.due_of([other]) == {other: Due("invocation", "i-other", "release", 8)}
        view.append([an_append("i-other", 1, head=a_head("i-other", "done"), due=None)])
        assert view.due_of([other]) == {}
    with ledger.read() as reading:
        assert reading.published_unclaimed() == {"pure": 2}
        assert ids(reading.next_ready("pure", 9)) == ["i-new", "i-last"]
        assert [(due.id, due.what) for due in reading.due(7, 9)][-1:] == [("i-first", "release")]
        first = reading.heads([invocation_stream("i-first")])[invocation_stream("i-first")]
        assert first.published_us == clock.now_us()
