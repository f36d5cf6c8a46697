"""Case EVT-01: events that come late, twice, in any order, or not at all never move a finished run back."""

from __future__ import annotations

from itertools import permutations

import pytest

from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.projection import ForkError, GapError, ToolProjector
from interlock.reduce import fold
from interlock.state import ToolState
from interlock.stream import StreamEntry
from tests.support.delivery import ScriptedStream, ShownLedger, entries_of, log_of
from tests.support.history import append_event, life
from workers.memory_projection import InMemoryProjection
from workers.project import Gap, ProjectorState, StreamProjector

ORDERS = list(permutations(range(1, 6)))
DELIVERIES = ("once", "doubled", "3 missing", "interleaved with inv_2")


def _ledger(*, second: bool) -> InMemoryLedger:
    """inv_1 from request to receipt at seq 1 to 5; beside it inv_2, two events of each in turn."""
    ledger = InMemoryLedger(ManualClock())
    first, other = life("inv_1"), life("inv_2", session="s-2")
    for place, event in enumerate(first):
        append_event(ledger, "inv_1", event, version=place)
    for place, event in enumerate(other[:3] if second else []):
        append_event(ledger, "inv_2", event, version=place, session="s-2")
    return ledger


def _deliveries(entries: list[StreamEntry], order: tuple[int, ...], kind: str) -> list[list[StreamEntry]]:
    delivered = [entries[seq - 1] for seq in order]
    if kind == "doubled":
        return [[entry, entry] for entry in delivered]
    if kind == "3 missing":
        return [[entry] for entry in delivered if entry.seq != 3]
    others = entries[5:]
    return [[entry, *others[place : place + 1]] for place, entry in enumerate(delivered)]


def _assert_finished(state: ToolState) -> None:
    (record,) = state.records
    assert record.status == "COMPLETED"
    assert record.started_at_us is not None
    assert record.completed_at_us is not None


@pytest.mark.parametrize("kind", DELIVERIES)
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(map(str, order)))
def test_every_order_of_delivery_ends_in_the_state_of_the_log(order: tuple[int, ...], kind: str) -> None:
    ledger = _ledger(second=kind.startswith("interleaved"))
    projection = InMemoryProjection()
    stream = ScriptedStream(_deliveries(entries_of(ledger), order, kind))
    projector = StreamProjector(ledger, stream, projection)
    for _ in range(8):
        projector.step()
    _assert_finished(projection.state("s-1"))
    for session in ("s-1", "s-2"):
        assert projection.state(session).to_bytes() == fold(session, log_of(ledger)).to_bytes()
    assert projector.gap is None


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(map(str, order)))
def test_rows_that_appear_in_any_order_wait_at_the_gap_until_it_is_closed(order: tuple[int, ...]) -> None:
    """Of what the log shows only the part without a hole is folded, and the hole is named."""
    whole = _ledger(second=False)
    ledger = ShownLedger.of(whole, shown=set())
    projection = InMemoryProjection()
    projector = StreamProjector(ledger, ScriptedStream([]), projection)
    for seq in order:
        ledger.shown.add(seq)
        projector.step()
        reached = next(place for place in range(7) if place + 1 not in ledger.shown)
        assert projection.checkpoint().seq == reached
        beyond = min((shown for shown in ledger.shown if shown > reached), default=None)
        assert projector.gap == (None if beyond is None else Gap(reached + 1, beyond))
    _assert_finished(projection.state("s-1"))
    assert projection.state("s-1").to_bytes() == fold("s-1", log_of(whole)).to_bytes()


def test_a_gap_is_refused_by_name_where_events_are_folded() -> None:
    events = log_of(_ledger(second=False))
    projector = ToolProjector(InMemoryProjection(), "ledger-1")
    with pytest.raises(GapError) as caught:
        projector.apply([*events[:2], *events[3:]])
    assert (caught.value.expected, caught.value.found) == (3, 4)
    assert projector.checkpoint().seq == 0


@pytest.mark.parametrize("folded_before", [0, 2, 5])
@pytest.mark.parametrize("place", [1, 3, 5])
def test_two_contents_for_one_place_stop_the_projector_with_an_alarm(
    place: int, folded_before: int, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = _ledger(second=False)
    entries = entries_of(ledger)
    other = entries[place - 1]._replace(hash="f" * 64)
    projection = InMemoryProjection()
    ToolProjector(projection, ledger.info.incarnation).apply(log_of(ledger)[:folded_before])
    projector = StreamProjector(ledger, ScriptedStream([[*entries, other]]), projection)
    with pytest.raises(ForkError):
        projector.step()
    assert projector.state is ProjectorState.FORKED
    assert projection.checkpoint().seq == folded_before
    assert f"two different events have sequence number {place}" in caplog.text


def test_two_entries_of_one_place_that_the_log_does_not_show_are_an_alarm_too() -> None:
    ledger = _ledger(second=False)
    ahead = entries_of(ledger)[4]._replace(seq=9)
    stream = ScriptedStream([[ahead, ahead._replace(hash="f" * 64)]])
    with pytest.raises(ForkError):
        StreamProjector(ledger, stream, InMemoryProjection()).step()
