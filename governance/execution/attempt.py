"""Claims: the wish to execute, and the move it comes to when the ledger is asked. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from governance.execution.step import ACTOR, RUNNING, Step, append_of, due_row, ended
from governance.ledger import Head, StageKey, head_with
from interlock.decision import Reason
from interlock.event import PermitReturned, ToolExecutionStarted, new_event
from interlock.permit import Permit
from interlock.phase import Phase
from interlock.receipt import SandboxReport
from interlock.settings import Settings


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims."""

    worker: str
    boot: str
    pool: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The wish to execute one invocation, judged at one version under one permit."""

    invocation_id: str
    version: int
    attempt: int
    nonce: str
    permit: Permit
    permit_digest: str
    stage: StageKey
    cause: str
    sandbox: SandboxReport


@dataclass(frozen=True, slots=True)
class Claimed:
    """Which claims stand, and until when their effects may begin."""

    winners: frozenset[str]
    start_by_boottime_ns: int
    unknown: tuple[Claim, ...] = ()
    """Claims of a commit without an answer that could not be read again: not to be run, to be watched."""
    seen_boottime_ns: int | None = None
    """When they were last seen to stand and to be wanted: nobody else could write until the commit."""


def claim_step(
    settings: Settings, now_us: int, epoch: int, head: Head, claimant: Claimant, claim: Claim, batch: int
) -> Step:
    """The move that a claim comes to under the transaction: a start, or what everybody would find."""
    if head.cancel:
        reason = Reason(code="CANCELLED", sentence="it was cancelled before it began")
        return ended(head, reason, claim.cause)
    if head.deadline_us and now_us >= head.deadline_us:
        reason = Reason(code="DEADLINE_PASSED", sentence="its deadline came before it began")
        return ended(head, reason, claim.cause)
    terms = claim.permit.terms
    if terms.epoch != epoch:
        return stale_step(now_us, epoch, head, claim.permit, claim.cause)
    if not terms.valid_from_us <= now_us < terms.valid_until_us:
        reason = Reason(code="PERMIT_EXPIRED", sentence="the permit is not valid at this moment")
        return _returned(now_us, head, claim.permit_digest, claim.cause, reason)
    return _started(settings, now_us, head, claimant, claim, batch)


def _started(
    settings: Settings, now_us: int, head: Head, claimant: Claimant, claim: Claim, batch: int
) -> Step:
    started = ToolExecutionStarted(
        worker=claimant.worker,
        boot=claimant.boot,
        nonce=claim.nonce,
        attempt=claim.attempt,
        pool=claimant.pool,
        permit_digest=claim.permit_digest,
        start_by_ms=settings.start_by_ms,
        sandbox=claim.sandbox,
        batch=batch,
    )
    running = head_with(
        head,
        phase=RUNNING,
        nonce=claim.nonce,
        boot=claimant.boot,
        claimed_us=now_us,
        attempt=claim.attempt,
        started=True,
        ready=False,
        published_us=0,
    )
    due = due_row(head, "lease", now_us + settings.lease_ms * 1_000)
    event = new_event(started, cause=claim.cause, actor=claimant.worker)
    return Step(append_of(head, [event], running, due), head.stage_key, is_claim=True)


def stale_step(now_us: int, epoch: int, head: Head, permit: Permit, cause: str) -> Step:
    """What becomes of an invocation whose permit names an older control epoch."""
    reason = Reason(code="CONTROL_EPOCH_CHANGED", sentence=f"epoch {permit.terms.epoch} is now {epoch}")
    return _returned(now_us, head, permit.digest, cause, reason)


def _returned(now_us: int, head: Head, permit_digest: str, cause: str, reason: Reason) -> Step:
    """Back to governance: the permit is not good any more, which is no verdict on the invocation."""
    payload = PermitReturned(reason=reason, permit_digest=permit_digest)
    event = new_event(payload, cause=cause, actor=ACTOR)
    after = head_with(head, phase=Phase.DECIDING.value, ready=False, published_us=0)
    return Step(append_of(head, [event], after, due_row(head, "decide", now_us)), head.stage_key)
