"""Outcomes: what a claim came to, and the move that records it. Reads at most; never appends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, assert_never

from governance.execution.step import ACTOR, DONE, Step, append_of, due_row, written_event
from governance.ledger import Due, Head, LedgerView, StageKey, head_with
from interlock.canonical import JsonObject, read_stored
from interlock.decision import Reason
from interlock.event import (
    ExecutionAttemptFailed,
    ExecutionReleased,
    NewEvent,
    ReconciliationRequired,
    ReconciliationResolved,
    StoredEvent,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    new_event,
)
from interlock.phase import Phase
from interlock.settings import Settings
from interlock.word import Word

Outcome = (
    ToolExecutionCompleted
    | ToolExecutionFailed
    | ExecutionAttemptFailed
    | ExecutionReleased
    | ReconciliationRequired
)
_OUTCOMES: Mapping[str, type[Outcome]] = MappingProxyType(
    {
        word.__name__: word
        for word in (
            ToolExecutionCompleted,
            ToolExecutionFailed,
            ExecutionAttemptFailed,
            ExecutionReleased,
            ReconciliationRequired,
        )
    }
)


@dataclass(frozen=True, slots=True)
class Written:
    """A ToolExecutionCompleted that is written already. Mostly nobody asks for more than its bytes."""

    nonce: str
    payload: bytes
    """Its canonical bytes."""

    def word(self) -> ToolExecutionCompleted:
        """What was written."""
        return ToolExecutionCompleted.model_validate(read_stored(self.payload))


@dataclass(frozen=True, slots=True)
class Reported:
    """What came of one claim, and the evidence that goes beside it."""

    invocation_id: str
    told: Outcome | Written
    stage: StageKey
    evidence: tuple[Word, ...] = ()
    wait_us: int = 0
    """For what is released or tried again: how long not to offer it."""

    @property
    def nonce(self) -> str:
        return self.told.nonce

    @property
    def outcome(self) -> Outcome:
        """The outcome as its word; read from its bytes each time where it was written at once."""
        return self.told.word() if isinstance(self.told, Written) else self.told

    def event(self) -> NewEvent:
        """The event that records it while its claim stands."""
        cause = f"claim:{self.nonce}"
        if isinstance(self.told, Written):
            return written_event(ToolExecutionCompleted, self.told.payload, cause=cause, actor=ACTOR)
        return new_event(self.told, cause=cause, actor=ACTOR)


class ReportFate:
    """What became of a reported outcome."""

    RECORDED = "recorded"
    KNOWN = "known"
    LATE = "late"
    CONTRADICTED = "contradicted"


def outcome_step(settings: Settings, now_us: int, head: Head, reported: Reported, event: NewEvent) -> Step:
    """The move of an outcome whose claim stands; `event` is its event."""
    outcome = reported.told

    def after(phase: str, **columns: Any) -> Head:
        settled = {"nonce": "", "boot": "", "ready": False, "published_us": 0, "phase": phase}
        return head_with(head, **{**settled, **columns})

    match outcome:
        case Written() | ToolExecutionCompleted() | ToolExecutionFailed():
            return Step(append_of(head, [event], after(DONE), None), head.stage_key, is_final=True)
        case ExecutionAttemptFailed():
            # The store's clock judges it, whatever the worker's clock made of the moment.
            due = due_row(head, "retry", now_us + reported.wait_us if reported.wait_us else outcome.again_us)
            return Step(append_of(head, [event], after(Phase.RETRY_WAIT.value), due), head.stage_key)
        case ExecutionReleased():
            columns, due = _given_back(settings, now_us, head, reported.wait_us)
            return Step(append_of(head, [event], after(Phase.QUEUED.value, **columns), due), head.stage_key)
        case ReconciliationRequired():
            due = due_row(head, "reconcile", now_us + settings.look_again_ms * 1_000)
            return Step(
                append_of(head, [event], after(Phase.RECONCILIATION_REQUIRED.value), due), head.stage_key
            )
        case _:
            assert_never(outcome)


def _given_back(settings: Settings, now_us: int, head: Head, wait_us: int) -> tuple[dict[str, Any], Due]:
    # What has to wait counts as published meanwhile: it keeps its place in the window, so a pool that
    # cannot start anything is not offered the whole line.
    again_us = now_us + (wait_us or settings.release_again_ms * 1_000)
    columns = {
        "ready": True,
        "published_us": now_us if wait_us else 0,
        "attempt": max(0, head.attempt - 1),
    }
    return columns, due_row(head, "release", again_us)


def resolution(view: LedgerView, head: Head, reported: Reported) -> Step | None:
    """What settles an unknown outcome by itself: the signed receipt of the very claim that was given up.

    It can only say that the effect happened.
    """
    if head.phase != Phase.RECONCILIATION_REQUIRED.value:
        return None
    outcome = reported.outcome
    if not isinstance(outcome, ToolExecutionCompleted):
        return None
    unknown = view.events([head.stream])[head.stream][-1]
    if unknown.type != ReconciliationRequired.__name__ or unknown.body()["nonce"] != outcome.nonce:
        return None
    resolved = ReconciliationResolved(
        verdict="executed", by=ACTOR, reason="its own outcome came in late", sealed=outcome.sealed
    )
    event = new_event(resolved, cause=f"claim:{outcome.nonce}", actor=ACTOR)
    after = head_with(head, phase=DONE, ready=False, published_us=0, nonce="", boot="")
    return Step(append_of(head, [event], after, None), head.stage_key, is_final=True)


def released(
    invocation_id: str, stage: StageKey, nonce: str, attempt: int, reason: Reason, wait_us: int = 0
) -> Reported:
    """The report of a claim that never began."""
    outcome = ExecutionReleased(nonce=nonce, attempt=attempt, reason=reason)
    return Reported(invocation_id, outcome, stage, wait_us=wait_us)


def outcome_from(name: str, payload: JsonObject) -> Outcome:
    """The outcome that was written down as its type's name and JSON; raises KeyError and ValidationError."""
    return _OUTCOMES[name].model_validate(payload)


def resolves(event: StoredEvent, outcome: Outcome) -> bool:
    """Whether this event is what became of that late outcome."""
    if event.type != ReconciliationResolved.__name__ or not isinstance(outcome, ToolExecutionCompleted):
        return False
    return bool(event.body()["sealed"] == outcome.sealed.to_json())


def contradicts(events: Sequence[StoredEvent], outcome: Outcome) -> bool:
    """Whether a verdict stands that says something else than this outcome about what happened."""
    if not events:
        return False
    last = events[-1]
    ran = isinstance(outcome, ToolExecutionCompleted)
    if last.type == "ReconciliationResolved":
        return bool((last.body()["verdict"] == "executed") != ran)
    # Two attempts of what may be repeated may both have completed; that is late, and no contradiction.
    return last.type == "ToolExecutionFailed" and ran
