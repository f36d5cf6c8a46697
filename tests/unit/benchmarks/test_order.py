"""What producers send, which stores are measured, how the end is waited for, and where the time went."""

from __future__ import annotations

import pytest

from benchmarks.approach import PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN, Approach, pause
from benchmarks.order import BARE, GOVERNED, Order
from benchmarks.phase import phase_medians_ms
from benchmarks.plan import SESSIONS, Plan, lanes, stores_of
from interlock.event import StoredEvent
from interlock.identifier import id_time_us, new_id
from interlock.proposal import PROPOSE_QUEUE


def order(n: int = 10, tenants: int = 1, side: str = GOVERNED) -> Order:
    return Order(side, "single", "redis+socket:///vk.sock", n, "t0", tenants)


def test_producers_share_the_calls_and_none_is_sent_twice() -> None:
    shares = order(10).shared(3)
    numbers = [[item.kwargs["arguments"]["value"] for item in share.submissions()] for share in shares]
    assert numbers == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert [len(list(share.submissions())) for share in order(10, side=BARE).shared(3)] == [4, 3, 3]


def test_an_order_survives_the_way_to_another_process() -> None:
    assert Order.from_line(order().to_line()) == order()


def test_every_call_has_a_stage_of_its_own() -> None:
    n = 2 * SESSIONS
    places = {(item.kwargs["session"], item.kwargs["stage"]) for item in order(n).submissions()}
    assert len(places) == n
    assert len({session for session, _ in places}) == SESSIONS


def test_one_tenant_uses_the_queue_of_everybody_and_several_one_of_their_own_each() -> None:
    assert [lane.queue for lane in lanes(1)] == [PROPOSE_QUEUE]
    queues = [item.queue for item in order(SESSIONS, 200).submissions()]
    assert sorted(queues) == sorted(f"{PROPOSE_QUEUE}.{lane.client}" for lane in lanes(200))


def test_a_session_keeps_to_one_client() -> None:
    by_session: dict[str, set[str]] = {}
    for item in order(3 * SESSIONS, 7).submissions():
        by_session.setdefault(item.kwargs["session"], set()).add(item.queue)
    assert all(len(queues) == 1 for queues in by_session.values())


def test_both_stores_are_measured_where_there_is_a_server() -> None:
    assert stores_of(None, has_postgres=True) == ("sqlite", "postgresql")
    assert stores_of(None, has_postgres=False) == ("sqlite",)
    assert stores_of("postgresql", has_postgres=True) == ("postgresql",)


@pytest.mark.parametrize(
    ("wanted", "has_postgres"), [("both", False), ("postgresql", False), ("mysql", True)]
)
def test_a_store_that_cannot_be_measured_is_refused(wanted: str, has_postgres: bool) -> None:
    with pytest.raises(ValueError, match="--store"):
        stores_of(wanted, has_postgres=has_postgres)


def test_more_producers_than_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="--producers"):
        Plan.of(20, producers=21)


def test_the_end_is_looked_for_more_often_the_nearer_it_is() -> None:
    assert pause(10_000, 100, 1.0) == PAUSE_SECONDS_MAX
    assert pause(1, 10_000, 1.0) == PAUSE_SECONDS_MIN
    assert PAUSE_SECONDS_MIN < pause(100, 10_000, 2.0) < PAUSE_SECONDS_MAX


def test_a_wait_keeps_what_it_saw() -> None:
    numbers = iter((3, 7, 12))
    approach = Approach(lambda: next(numbers), "a number")
    approach.reach(10)
    assert [number for _, number in approach.seen] == [3, 7, 12]


def event(stream_id: str, seq: int, type_: str, at_us: int) -> StoredEvent:
    return StoredEvent(
        seq, "invocation", stream_id, 1, type_, 1, at_us, "", "", "default", "s", True, b"{}", ""
    )  # fmt: skip


def test_steps_are_the_medians_of_the_ledger_s_times() -> None:
    one = new_id()
    made = id_time_us(one) or 0
    events = [
        event(one, 1, "ToolInvocationRequested", made + 5_000),
        event(one, 2, "ApprovalGranted", made + 5_000),
        event(one, 3, "ToolExecutionStarted", made + 8_000),
        event(one, 4, "ToolExecutionCompleted", made + 9_000),
    ]
    steps = phase_medians_ms(events, [(made + 7_000, 2), (made + 20_000, 4)])
    assert steps == {
        "proposed_to_requested": 5.0,
        "requested_to_granted": 0.0,
        "granted_to_started": 3.0,
        "started_to_completed": 1.0,
        "completed_to_projected": 11.0,
        "proposed_to_projected": 20.0,
    }


def test_a_step_that_nobody_made_has_no_time() -> None:
    assert set(phase_medians_ms([], []).values()) == {None}
