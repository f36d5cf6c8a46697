"""Claims: the wish to execute, and the move it comes to when the ledger is asked. Pure.

What needs no answer of the ledger (the event that a claim comes to, the outcome of a computation) is written
before the ledger is asked: nobody else writes while it answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from governance.execution.outcome import Reported, outcome_step
from governance.execution.step import ACTOR, RUNNING, Step, append_of, due_row, ended, written_event
from governance.ledger import Head, StageKey, head_with
from interlock.canonical import JsonObject, plainly_written
from interlock.decision import Reason
from interlock.event import (
    NewEvent,
    PermitReturned,
    Stream,
    ToolExecutionStarted,
    invocation_stream,
    new_event,
)
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


class Attempt(NamedTuple):
    """A claim as it goes to the ledger: with the event it comes to where it stands, and what it came to
    already where it was a computation."""

    stream: Stream
    claim: Claim
    start: NewEvent
    reported: Reported | None = None
    told: NewEvent | None = None
    """The event of what is reported."""


class Computed(NamedTuple):
    """What a computation came to that nobody has claimed yet."""

    claim: Claim
    reported: Reported


def attempts_of(settings: Settings, claimant: Claimant, claims: Sequence[Claim]) -> list[Attempt]:
    """These claims as they go to the ledger, in the order in which every writer takes them."""
    starts = _start_events(settings, claimant, claims)
    made = [Attempt(invocation_stream(claim.invocation_id), claim, start) for claim, start in starts]
    return sorted(made, key=_stream_of)


def computations_of(settings: Settings, claimant: Claimant, computed: Sequence[Computed]) -> list[Attempt]:
    """Likewise claims that come with their outcomes."""
    reports = {one.claim.nonce: one.reported for one in computed}
    return [
        attempt._replace(reported=(reported := reports[attempt.claim.nonce]), told=reported.event())
        for attempt in attempts_of(settings, claimant, [one.claim for one in computed])
    ]


_stream_of = attrgetter("stream")


def _start_events(
    settings: Settings, claimant: Claimant, claims: Sequence[Claim]
) -> list[tuple[Claim, NewEvent]]:
    """Each claim with its start. They differ in a few fields, so the rest is written down once."""
    forms: dict[SandboxReport, JsonObject] = {}
    starts = []
    for claim in claims:
        form = forms.get(claim.sandbox)
        if form is None:
            form = forms[claim.sandbox] = _start(settings, claimant, claim, len(claims)).to_json()
        payload = plainly_written(
            {**form, "nonce": claim.nonce, "attempt": claim.attempt, "permit_digest": claim.permit_digest}
        )
        if payload is None:
            payload = _start(settings, claimant, claim, len(claims)).to_bytes()
        start = written_event(ToolExecutionStarted, payload, cause=claim.cause, actor=claimant.worker)
        starts.append((claim, start))
    return starts


def _start(settings: Settings, claimant: Claimant, claim: Claim, batch: int) -> ToolExecutionStarted:
    return ToolExecutionStarted(
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


def attempt_step(
    settings: Settings, now_us: int, epoch: int, head: Head, claimant: Claimant, attempt: Attempt
) -> Step:
    """The move that an attempt comes to under the transaction.

    What is computed already is recorded with the claim that allows it, in one append; where that claim does
    not stand, nothing of it is.
    """
    step = claim_step(settings, now_us, epoch, head, claimant, attempt)
    if attempt.reported is None or attempt.told is None or not step.is_claim:
        return step
    running = step.append.head
    assert running is not None, "a claim that stands has a head"
    done = outcome_step(settings, now_us, running, attempt.reported, attempt.told)
    events = [*step.append.events, *done.append.events]
    return Step(done.append._replace(expected=head.version, events=events), done.stage, True, done.is_final)


def claim_step(
    settings: Settings, now_us: int, epoch: int, head: Head, claimant: Claimant, attempt: Attempt
) -> Step:
    """The move that a claim comes to under the transaction: a start, or what everybody would find."""
    claim = attempt.claim
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
    return _started(settings, now_us, head, claimant, attempt)


def _started(settings: Settings, now_us: int, head: Head, claimant: Claimant, attempt: Attempt) -> Step:
    running = head_with(
        head,
        phase=RUNNING,
        nonce=attempt.claim.nonce,
        boot=claimant.boot,
        claimed_us=now_us,
        attempt=attempt.claim.attempt,
        started=True,
        ready=False,
        published_us=0,
    )
    due = due_row(head, "lease", now_us + settings.lease_ms * 1_000)
    return Step(append_of(head, [attempt.start], running, due), head.stage_key, is_claim=True)


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
