"""What is told beside outcomes, and outcomes whose claim stands no more: appends evidence, moves nothing."""

from __future__ import annotations

from collections.abc import Iterable

from governance.execution.outcome import Reported, ReportFate, contradicts, resolves
from governance.execution.step import ACTOR, evidence_append
from governance.ledger import LedgerTransaction
from interlock.event import (
    ExecutionReleased,
    LateOutcomeRecorded,
    OutcomeContradicted,
    evidence_stream,
    invocation_stream,
    new_event,
)


def put_late(transaction: LedgerTransaction, reported: Reported) -> str:
    """What an outcome is whose claim no longer stands: known already, evidence, or a contradiction."""
    stream = invocation_stream(reported.invocation_id)
    events = transaction.events([stream]).get(stream, [])
    outcome, payload = reported.outcome, reported.event().payload
    if any(event.payload == payload or resolves(event, outcome) for event in events):
        return ReportFate.KNOWN
    if isinstance(outcome, ExecutionReleased):
        return ReportFate.KNOWN  # nothing ran, and nobody waits for it any more
    fate = ReportFate.CONTRADICTED if contradicts(events, outcome) else ReportFate.LATE
    word = OutcomeContradicted if fate == ReportFate.CONTRADICTED else LateOutcomeRecorded
    evidence = word(
        nonce=outcome.nonce,
        outcome={"type": type(outcome).__name__, "payload": outcome.to_json()},
    )
    note = new_event(evidence, cause=f"claim:{outcome.nonce}", actor=ACTOR)
    beside = transaction.events([evidence_stream(reported.invocation_id)])
    if any(note.payload == event.payload for events in beside.values() for event in events):
        return ReportFate.KNOWN
    transaction.append([evidence_append(reported.invocation_id, [note], reported.stage)])
    return fate


def put_evidence(transaction: LedgerTransaction, reports: Iterable[Reported]) -> None:
    """Append what these reports tell beside their outcomes."""
    appends = [
        evidence_append(
            reported.invocation_id,
            [new_event(word, cause=f"claim:{reported.nonce}", actor=ACTOR) for word in reported.evidence],
            reported.stage,
        )
        for reported in reports
        if reported.evidence
    ]
    if appends:
        transaction.append(appends)
