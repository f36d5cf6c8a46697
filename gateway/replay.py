"""Replays a session from what is recorded: state by folding the log, answers from receipts, nothing executed.

Compares the folded state with the projection at the projection's own place in the log, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gateway.reading import Reading, fold_on
from interlock.event import StoredEvent
from interlock.phase import Status
from interlock.receipt import Failure, Success, ToolResult
from interlock.state import ToolInvocationRecord, ToolState
from interlock.workspace import DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Answered:
    """One invocation with the result that its recorded events give; None while it has none."""

    record: ToolInvocationRecord
    result: ToolResult | None


@dataclass(frozen=True, slots=True)
class Replay:
    """What a session's events add up to."""

    state: ToolState
    seq: int
    """Place in the log up to which events were folded."""
    answers: tuple[Answered, ...]
    projected_seq: int | None
    """Where the projection stands; None without one."""
    is_equal: bool | None
    """Whether projection and fold agree, byte for byte, at `projected_seq`; None without a projection."""


def replay(reading: Reading, session: str, tenant: str = DEFAULT_TENANT) -> Replay:
    """Fold and answer one session. Raises what the reducer raises on an event that cannot be folded."""
    # The projection first: what it has folded, the ledger has for sure.
    projected = reading.projected(session, tenant)
    with reading.ledger.read() as view:
        last = view.last_seq()
    place = None if projected is None else projected.checkpoint.seq
    results: dict[str, ToolResult] = {}
    state = ToolState(session, (), tenant)
    is_equal: bool | None = None
    if projected is not None and place is not None:
        folded = reading.session_events(session, tenant, until=place)
        state = fold_on(state, _answering(folded, results))
        is_equal = state.to_bytes() == projected.data
    later = reading.session_events(session, tenant, after=place or 0, until=last)
    state = fold_on(state, _answering(later, results))
    answers = tuple(Answered(record, _result(record, results)) for record in state.records)
    return Replay(state, max(last, place or 0), answers, place, is_equal)


def _answering(events: Iterable[StoredEvent], results: dict[str, ToolResult]) -> Iterator[StoredEvent]:
    """Pass events on, keeping the result that each outcome holds."""
    for event in events:
        if event.type in _OUTCOMES:
            body = event.body()
            if body.get("sealed") is not None and event.type != "ToolExecutionFailed":
                results[event.stream_id] = _success(event.stream_id, body["sealed"])
            elif event.type == "ToolExecutionFailed":
                results[event.stream_id] = _failure(event.stream_id, body["failure"])
        yield event


_OUTCOMES = frozenset(("ToolExecutionCompleted", "ToolExecutionFailed", "ReconciliationResolved"))


def _success(invocation_id: str, sealed: Any) -> Success:
    receipt = sealed["receipt"]
    return Success(
        invocation_id=invocation_id,
        output=receipt["structured_output"],
        exit_code=receipt["exit_code"],
        metadata={
            "receipt_digest": sealed["receipt_digest"],
            "kind": receipt["kind"],
            "duration_ms": receipt["duration_ms"],
            "attempt": receipt["attempt"],
        },
    )


def _failure(invocation_id: str, detail: Any) -> Failure:
    return Failure(invocation_id=invocation_id, reason=detail["code"], recoverable=detail["recoverable"])


def _result(record: ToolInvocationRecord, results: dict[str, ToolResult]) -> ToolResult | None:
    """What its outcome said; an end without one is a failure for the reason of the record."""
    if not Status(record.status).is_terminal:
        return None
    if record.invocation_id in results:
        return results[record.invocation_id]
    reason = record.reason_code or "OUTCOME_UNKNOWN"
    return Failure(invocation_id=record.invocation_id, reason=reason, recoverable=False)
