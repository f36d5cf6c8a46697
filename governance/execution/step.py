"""Single moves of one invocation, as appends: what they write, and what stands beside it afterwards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from governance import lock
from governance.execution.work import Work
from governance.ledger import Append, Due, Head, StageKey, head_with
from interlock.decision import Reason
from interlock.event import (
    EVENT_TYPES,
    FailureDetail,
    NewEvent,
    PermitMismatched,
    ToolExecutionFailed,
    ToolExecutionRejected,
    evidence_stream,
    new_event,
)
from interlock.permit import PermitMismatch
from interlock.phase import Phase
from interlock.word import Word

ACTOR = "worker"
RUNNING, DONE = Phase.RUNNING.value, Phase.DONE.value
"""Said once: to ask a member for its value is a call, and these are asked for with every item."""


@dataclass(frozen=True, slots=True)
class Step:
    """One move of one invocation, about to be appended."""

    append: Append
    stage: StageKey
    is_claim: bool = False
    is_final: bool = False


def keys_of(invocation_id: str, stage: StageKey) -> tuple[str, str]:
    return (lock.of_invocation(invocation_id), lock.of_stage(stage))


def written_event(kind: type[Word], payload: bytes, *, cause: str, actor: str) -> NewEvent:
    """An event whose word is written already: `payload` are its canonical bytes."""
    known = EVENT_TYPES[kind.__name__]
    return NewEvent(kind.__name__, payload, cause, actor, known.moves_state, known.format)


def due_row(head: Head, what: str, at_us: int) -> Due:
    return Due(head.kind, head.id, what, at_us)


def append_of(head: Head, events: Sequence[NewEvent], after: Head, due: Due | None) -> Append:
    return Append(head.stream, head.version, events, after, due, head.tenant, head.session)


def evidence_append(invocation_id: str, events: Sequence[NewEvent], stage: StageKey) -> Append:
    return Append(evidence_stream(invocation_id), -1, events, tenant=stage.tenant, session=stage.session)


def mismatch_append(work: Work, found: PermitMismatch, worker: str) -> Append:
    payload = PermitMismatched(field=found.field, detail=found.detail, worker=worker)
    event = new_event(payload, cause=work.cause, actor=worker)
    return evidence_append(work.invocation_id, [event], work.head.stage_key)


def ended(head: Head, reason: Reason, cause: str) -> Step:
    """The final move of what will not run (again): a rejection before the first start, a failure after it."""
    payload: Word
    if head.started:
        detail = FailureDetail(code=reason.code, sentence=reason.sentence, recoverable=False, began=False)
        payload = ToolExecutionFailed(nonce="", failure=detail)
    else:
        payload = ToolExecutionRejected(reason=reason)
    event = new_event(payload, cause=cause, actor=ACTOR)
    after = head_with(head, phase=DONE, ready=False, published_us=0, nonce="", boot="")
    return Step(append_of(head, [event], after, None), head.stage_key, is_final=True)


def stop_reason(head: Head | None, nonce: str) -> str | None:
    if head is None or head.phase != RUNNING or head.nonce != nonce:
        return "CLAIM_LOST"
    return "CANCELLED" if head.cancel else None
