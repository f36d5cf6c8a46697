"""The quick fold is the exact one: over every type of event, whatever stands in its payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import reduce
from interlock.canonical import canonical
from interlock.errors import InterlockError, NotJsonError
from interlock.event import EVENT_TYPES, StoredEvent
from interlock.phase import LEGAL_MOVES
from interlock.reduce import DefaultToolReducer
from interlock.state import BLANK, ToolInvocationRecord, record_with
from tests.support.history import life

REASON = {"code": "SOME_CODE", "sentence": 'ein Grund: ü, " and \u2028'}
FAILURE = {**REASON, "recoverable": True, "began": True}
RECEIPT = {"exit_code": 3, "output_summary": "said \\ and \u0001"}
SEALED = {"receipt": RECEIPT, "receipt_digest": "d" * 64}
VOTE = {"decision": "approve", "approver": "ann"}
WRITTEN: dict[str, bytes] = {event.type: event.payload for event in life("i-1")} | {
    name: canonical(cast(Any, body))
    for name, body in {
        "DecisionDeferred": {"reasons": [REASON], "until_us": 5},
        "ApprovalRequested": {"snapshot": {"reasons": [REASON]}, "expires_us": 5},
        "ApprovalVoted": {"vote": VOTE, "person": "ann"},
        "ApprovalDenied": {"approver": "ann", "reason": "no"},
        "ApprovalExpired": {"expires_us": 5},
        "PermitReturned": {"reason": REASON, "permit_digest": ""},
        "ToolExecutionFailed": {"nonce": "n", "failure": FAILURE, "sealed": SEALED},
        "ExecutionAttemptFailed": {"nonce": "n", "attempt": 1, "failure": FAILURE, "again_us": 5},
        "ExecutionReleased": {"nonce": "n", "attempt": 1, "reason": REASON},
        "ExecutionAbandoned": {"nonce": "n", "attempt": 1, "reason": REASON, "alone": True},
        "ToolExecutionRejected": {"reason": REASON, "verdicts": []},
        "CancellationRequested": {"by": "ann", "reason": ""},
        "ReconciliationRequired": {"nonce": "n", "reason": REASON, "sealed": None},
        "ReconciliationResolved": {"verdict": "executed", "by": "ann", "reason": "seen", "sealed": SEALED},
    }.items()
}  # fmt: skip
"""A payload of every type that moves an invocation."""

# What canonical bytes can hold, with a weight on what two readers might read differently.
ODD = st.sampled_from(
    (2.0**53, 2.0**60, 9_007_199_254_740_991, -(2.0**63), 1e20, 1e21, 1.5, 1e-7, 5e-324, "\ud7ff", "", [])
)
TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | ODD | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def an_event(name: str, version: int, payload: bytes) -> StoredEvent:
    return StoredEvent(
        version, "invocation", "i-1", version, name, 1, 1_700_000_000_000_000 + version,
        "submission:s", "test", "default", "s-1", True, payload, "",
    )  # fmt: skip


def exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "_quickly_changed", lambda _record, _event: None)


def told(events: Sequence[StoredEvent]) -> list[Any]:
    """What each event comes to: the record's bytes, or why there is none."""
    record: ToolInvocationRecord | None = None
    came_to: list[Any] = []
    for event in events:
        try:
            record = DefaultToolReducer().apply(record, event)
            assert record is not None
            came_to.append((record, _bytes_of(record)))
        except InterlockError as error:
            came_to.append((error.code, error.message))
    return came_to


def _bytes_of(record: ToolInvocationRecord) -> bytes | str:
    try:
        written = canonical(record.to_json())
    except NotJsonError as error:
        with pytest.raises(NotJsonError):
            record.to_bytes()
        return error.code
    assert record.to_bytes() == written
    return written


@st.composite
def histories(draw: st.DrawFn) -> list[StoredEvent]:
    """Legal moves from the first event on; some payloads hold other values, some are cut short."""
    events: list[StoredEvent] = []
    phase = "new"
    while len(events) < 12 and (names := [name for name, moves in LEGAL_MOVES.items() if phase in moves]):
        name = draw(st.sampled_from(names))
        events.append(an_event(name, len(events) + 1, draw(payloads(name))))
        phase = LEGAL_MOVES[name][phase]
    return events


@st.composite
def payloads(draw: st.DrawFn, name: str) -> bytes:
    kind = draw(st.integers(0, 9))
    if kind < 6:
        return WRITTEN[name]
    if kind == 6:
        return draw(
            st.sampled_from((canonical(cast(Any, draw(JSON))), WRITTEN[name][: draw(st.integers(0, 40))]))
        )
    body: Any = an_event(name, 1, WRITTEN[name]).body()
    at, deeper = body, draw(st.booleans())
    key = draw(st.sampled_from(sorted(at)))
    while deeper and isinstance(at[key], dict) and at[key]:
        at, deeper = at[key], draw(st.booleans())
        key = draw(st.sampled_from(sorted(at)))
    at[key] = draw(JSON)
    return canonical(body)


@given(histories())
def test_a_history_folds_alike_quickly_and_exactly(events: list[StoredEvent]) -> None:
    quickly = told(events)
    with pytest.MonkeyPatch.context() as patched:
        exactly(patched)
        assert told(events) == quickly


def test_every_type_that_moves_an_invocation_is_folded_quickly() -> None:
    for name in LEGAL_MOVES:
        assert EVENT_TYPES[name].moves_state
        event = an_event(name, 2, WRITTEN[name])
        assert reduce._quickly_changed(BLANK, event) == reduce._changed(BLANK, event, event.body())


@given(st.dictionaries(st.sampled_from(sorted(vars(BLANK))), JSON), st.lists(JSON, max_size=2))
def test_a_record_is_written_as_canonical_writes_it(changes: dict[str, Any], approvers: list[Any]) -> None:
    record = record_with(BLANK, **{**changes, "approvers": tuple(approvers)})
    assert record == replace(BLANK, **{**changes, "approvers": tuple(approvers)})
    _bytes_of(record)


def test_a_changed_record_is_another_and_as_frozen() -> None:
    record = record_with(BLANK, status="STARTED")
    assert BLANK.status == ""
    with pytest.raises(FrozenInstanceError):
        record.status = "FAILED"  # type: ignore[misc]  # frozen: that it raises is the point
    with pytest.raises(TypeError, match="no field 'colour'"):
        record_with(record, colour="red")
