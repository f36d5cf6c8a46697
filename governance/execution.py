"""The functions on the ledger that whoever executes may call: load, claim, report, reject, look, beat.

Each is one transaction at most, written once against the ledger's port. A claim that loses writes nothing; an
outcome that conflicts is written again while its claim stands, and is evidence afterwards. Never runs a tool,
never verifies a seal, and publishes hints only after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from governance.ledger import (
    Append,
    Boot,
    Due,
    Head,
    Ledger,
    LedgerTransaction,
    LedgerView,
    StageKey,
    head_with,
)
from governance.line import Line
from interlock.canonical import JsonObject, canonical, sha256_hex
from interlock.clock import boottime_ns
from interlock.decision import Reason
from interlock.errors import BrokerUnavailableError, CommitUnknownError, LedgerUnavailableError
from interlock.event import (
    ExecutionAttemptFailed,
    ExecutionReleased,
    FailureDetail,
    LateOutcomeRecorded,
    NewEvent,
    OutcomeContradicted,
    PermitMismatched,
    PermitReturned,
    ReconciliationRequired,
    ReconciliationResolved,
    StoredEvent,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionRejected,
    ToolExecutionStarted,
    ToolInvocationRequested,
    evidence_stream,
    invocation_stream,
    new_event,
)
from interlock.fault import FaultPoints
from interlock.hint import Hint, HintPublisher, Waker
from interlock.permit import Action, Permit, PermitMismatch
from interlock.receipt import SandboxReport
from interlock.request import ToolRequest
from interlock.settings import Settings
from interlock.state import NEW, Phase, next_phase
from interlock.word import Word

ACTOR = "worker"
CLAIMABLE = frozenset((Phase.QUEUED.value, Phase.RETRY_WAIT.value))
ROUNDS_MAX = 8
"""How often a report reads again what another writer moved meanwhile; nobody moves one stream that often."""

Unseal = Callable[[JsonObject, Sequence[str], str], JsonObject]
"""Stored arguments, the pointers to what is sealed in them, and the invocation: the true arguments."""

Outcome = (
    ToolExecutionCompleted
    | ToolExecutionFailed
    | ExecutionAttemptFailed
    | ExecutionReleased
    | ReconciliationRequired
)
_OUTCOMES: Mapping[str, type[Outcome]] = {
    word.__name__: word
    for word in (
        ToolExecutionCompleted,
        ToolExecutionFailed,
        ExecutionAttemptFailed,
        ExecutionReleased,
        ReconciliationRequired,
    )
}


@dataclass(frozen=True, slots=True)
class Work:
    """One invocation as whoever executes needs it: what was asked, and what was allowed."""

    head: Head
    requested: ToolInvocationRequested
    """Without its arguments, which are those of `request`."""
    permit: Permit | None
    """The one that stands, None where none does."""
    permit_digest: str
    action: Action
    """Made of what is about to run, never of what was once computed."""
    request: ToolRequest
    """With the true arguments."""
    told_before: tuple[tuple[str, object], ...]
    """Fields of the action as the head, and the snapshot of a parked one, tell them for a second time."""
    permit_uses: int
    """Attempts begun under the permit that stands."""
    releases: int
    """How often it was given back since it last ran."""
    cause: str

    @property
    def invocation_id(self) -> str:
        return self.head.id


@dataclass(frozen=True, slots=True)
class Unusable:
    """An invocation that cannot be executed from what was read; nothing was written about it."""

    invocation_id: str
    code: str
    detail: str


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


@dataclass(frozen=True, slots=True)
class Reported:
    """What came of one claim, and the evidence that goes beside it."""

    invocation_id: str
    outcome: Outcome
    stage: StageKey
    evidence: tuple[Word, ...] = ()
    wait_us: int = 0
    """For what is released or tried again: how long not to offer it."""


class ReportFate:
    """What became of a reported outcome."""

    RECORDED = "recorded"
    KNOWN = "known"
    LATE = "late"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Execution:
    """The ledger as whoever executes sees it."""

    ledger: Ledger
    line: Line
    publisher: HintPublisher
    waker: Waker
    settings: Settings
    faults: FaultPoints
    unseal: Unseal
    boottime: Callable[[], int] = field(default=boottime_ns)

    # --- reading -------------------------------------------------------------------------------------

    def load(self, invocation_ids: Sequence[str]) -> dict[str, Work | Unusable]:
        """What these ids stand for; an id that the ledger does not have is absent.

        Raises LedgerUnavailableError.
        """
        streams = [invocation_stream(identifier) for identifier in dict.fromkeys(invocation_ids)]
        with self.ledger.read() as view:
            heads, events = view.heads(streams), view.events(streams)
        return {
            stream.id: self._work(heads[stream], events[stream])
            for stream in streams
            if stream in heads and stream in events
        }

    def _work(self, head: Head, events: Sequence[StoredEvent]) -> Work | Unusable:
        fault = _phase_fault(head, events)
        if fault is not None:
            return Unusable(head.id, "HEAD_DIFFERS", fault)
        body = events[0].body()
        # Kept once, as the request's: to freeze and thaw them again would cost more than all the rest.
        arguments = body.pop("arguments", None)
        requested = ToolInvocationRequested.model_validate({**body, "arguments": None})
        if not isinstance(arguments, dict):
            return Unusable(head.id, "ARGUMENTS_NOT_OBJECT", "there are no arguments to run with")
        if requested.sensitive:
            try:
                arguments = self.unseal(arguments, requested.sensitive, head.id)
            except ValueError as error:
                return Unusable(head.id, "SEAL_NOT_OPENED", str(error))
        return _work(head, events, requested, arguments)

    def stop_reasons(self, claims: Mapping[str, str]) -> dict[str, str]:
        """Of these claims (invocation → nonce), those that must end now, with the code why.

        Raises LedgerUnavailableError: whoever has not begun must not begin then.
        """
        with self.ledger.read() as view:
            heads = view.heads(invocation_stream(identifier) for identifier in claims)
        found = {head.id: head for head in heads.values()}
        reasons = {
            identifier: _stop_reason(found.get(identifier), nonce) for identifier, nonce in claims.items()
        }
        return {identifier: reason for identifier, reason in reasons.items() if reason}

    # --- claiming ------------------------------------------------------------------------------------

    def claim(self, claimant: Claimant, claims: Sequence[Claim], *, tell: bool = True) -> Claimed:
        """Append ToolExecutionStarted for each claim that stands up to the ledger, durably.

        What cannot be claimed for a reason that everybody would find (cancelled, past its deadline, judged
        under older rules) is moved on by the same transaction. Raises LedgerUnavailableError: nothing stands.
        `tell` wakes the relay.
        """
        begun_ns = self.boottime()
        start_by_ns = begun_ns + self.settings.start_by_ms * 1_000_000
        self.faults.reach("claim.before_commit")
        try:
            with self.ledger.write(_locks(claims)) as transaction:
                won, hints, moved = self._claim_in(transaction, claimant, claims)
        except CommitUnknownError:
            return self._after_unknown_commit(claims, start_by_ns)
        self.faults.reach("claim.after_commit")
        self._publish(hints)
        if tell or moved:
            self.waker.wake("relay")
        if moved:
            self.waker.wake("governor")
        return Claimed(frozenset(won), start_by_ns)

    def _claim_in(
        self, transaction: LedgerTransaction, claimant: Claimant, claims: Sequence[Claim]
    ) -> tuple[set[str], list[Hint], bool]:
        judged = self._judged(transaction, claimant, claims)
        lost = transaction.append([step.append for step in judged])
        stood = [step for step in judged if step.append.stream not in lost]
        ended = {step.stage for step in stood if step.is_final}
        gained = self.line.advance(transaction, ended) if ended else set()
        hints = self.line.release(transaction, {claimant.pool} | gained) if stood else []
        won = {step.append.stream.id for step in stood if step.is_claim}
        return won, hints, len(won) < len(stood)

    def _judged(
        self, transaction: LedgerTransaction, claimant: Claimant, claims: Sequence[Claim]
    ) -> list[_Step]:
        heads = transaction.heads(invocation_stream(claim.invocation_id) for claim in claims)
        epoch = transaction.epoch()
        steps: list[_Step] = []
        for claim in sorted(claims, key=lambda claim: claim.invocation_id):
            head = heads.get(invocation_stream(claim.invocation_id))
            if head is None or head.version != claim.version or head.phase not in CLAIMABLE or not head.ready:
                continue
            steps.append(self._step(transaction.now_us, epoch, head, claimant, claim, len(claims)))
        return steps

    def _step(
        self, now_us: int, epoch: int, head: Head, claimant: Claimant, claim: Claim, batch: int
    ) -> _Step:
        if head.cancel:
            reason = Reason(code="CANCELLED", sentence="it was cancelled before it began")
            return _ended(head, reason, claim.cause)
        if head.deadline_us and now_us >= head.deadline_us:
            reason = Reason(code="DEADLINE_PASSED", sentence="its deadline came before it began")
            return _ended(head, reason, claim.cause)
        terms = claim.permit.terms
        if terms.epoch != epoch:
            return _returned(
                now_us, head, claim, "CONTROL_EPOCH_CHANGED", f"epoch {terms.epoch} is now {epoch}"
            )
        if not terms.valid_from_us <= now_us < terms.valid_until_us:
            return _returned(now_us, head, claim, "PERMIT_EXPIRED", "the permit is not valid at this moment")
        return self._started(now_us, head, claimant, claim, batch)

    def _started(self, now_us: int, head: Head, claimant: Claimant, claim: Claim, batch: int) -> _Step:
        started = ToolExecutionStarted(
            worker=claimant.worker,
            boot=claimant.boot,
            nonce=claim.nonce,
            attempt=claim.attempt,
            pool=claimant.pool,
            permit_digest=claim.permit_digest,
            start_by_ms=self.settings.start_by_ms,
            sandbox=claim.sandbox,
            batch=batch,
        )
        running = head_with(
            head,
            phase=Phase.RUNNING.value,
            nonce=claim.nonce,
            boot=claimant.boot,
            claimed_us=now_us,
            attempt=claim.attempt,
            started=True,
            ready=False,
            published_us=0,
        )
        due = _due(head, "lease", now_us + self.settings.lease_ms * 1_000)
        event = new_event(started, cause=claim.cause, actor=claimant.worker)
        return _Step(_append(head, [event], running, due), head.stage_key, is_claim=True)

    def _after_unknown_commit(self, claims: Sequence[Claim], start_by_ns: int) -> Claimed:
        """Run after all only what is seen to carry my nonce while it may still begin; watch the rest."""
        nonces = {claim.invocation_id: claim.nonce for claim in claims}
        try:
            stopped = self.stop_reasons(nonces)
        except LedgerUnavailableError:
            return Claimed(frozenset(), start_by_ns, tuple(claims))
        in_time = self.boottime() < start_by_ns
        won = frozenset(nonces.keys() - stopped.keys()) if in_time else frozenset()
        return Claimed(won, start_by_ns, tuple(claim for claim in claims if claim.invocation_id not in won))

    def release_seen(self, claims: Sequence[Claim], reason: Reason) -> set[str]:
        """Give back those of these claims that stand although nobody runs them; returns their ids."""
        nonces = {claim.invocation_id: claim.nonce for claim in claims}
        stopped = self.stop_reasons(nonces)
        seen = [claim for claim in claims if stopped.get(claim.invocation_id) in (None, "CANCELLED")]
        if seen:
            self.report(
                [
                    released(claim.invocation_id, claim.stage, claim.nonce, claim.attempt, reason)
                    for claim in seen
                ]
            )
        return {claim.invocation_id for claim in seen}

    # --- reporting -----------------------------------------------------------------------------------

    def report(self, outcomes: Sequence[Reported]) -> dict[str, str]:
        """Write each outcome while its claim stands, else as evidence; invocation → what became of it.

        May be called again with the same outcome after any error: it is then known. Raises
        LedgerUnavailableError and CommitUnknownError; the caller keeps the outcome and calls again.
        """
        fates: dict[str, str] = {}
        open_outcomes = list(outcomes)
        for _ in range(ROUNDS_MAX):
            self.faults.reach("report.before_commit")
            with self.ledger.write(_locks(open_outcomes)) as transaction:
                done, hints = self._report_in(transaction, open_outcomes)
            self.faults.reach("report.after_commit")
            fates |= done
            self._publish(hints)
            self.waker.wake("relay")
            open_outcomes = [outcome for outcome in open_outcomes if outcome.invocation_id not in done]
            if not open_outcomes:
                return fates
        raise LedgerUnavailableError(f"{len(open_outcomes)} outcomes conflicted {ROUNDS_MAX} times")

    def _report_in(
        self, transaction: LedgerTransaction, outcomes: Sequence[Reported]
    ) -> tuple[dict[str, str], list[Hint]]:
        heads = transaction.heads(invocation_stream(outcome.invocation_id) for outcome in outcomes)
        steps: list[_Step] = []
        fates: dict[str, str] = {}
        for outcome in sorted(outcomes, key=lambda outcome: outcome.invocation_id):
            head = heads.get(invocation_stream(outcome.invocation_id))
            if head is not None and head.phase == Phase.RUNNING.value and head.nonce == outcome.outcome.nonce:
                steps.append(self._outcome(transaction.now_us, head, outcome))
                fates[outcome.invocation_id] = ReportFate.RECORDED
            elif head is not None and (step := self._resolution(transaction, head, outcome)) is not None:
                steps.append(step)
                fates[outcome.invocation_id] = ReportFate.RECORDED
            else:
                fates[outcome.invocation_id] = self._late(transaction, outcome)
        lost = transaction.append([step.append for step in steps])
        stood = [step for step in steps if step.append.stream not in lost]
        self._evidence(
            transaction, [o for o in outcomes if invocation_stream(o.invocation_id) not in lost], fates
        )
        done = {
            identifier: fate
            for identifier, fate in fates.items()
            if invocation_stream(identifier) not in lost
        }
        return done, self._after_moves(transaction, stood)

    def _after_moves(self, transaction: LedgerTransaction, steps: Sequence[_Step]) -> list[Hint]:
        """Release what these moves make way for: successors of what ended, and what was given back."""
        ended = {step.stage for step in steps if step.is_final}
        pools = self.line.advance(transaction, ended) if ended else set()
        pools |= {
            step.append.head.pool for step in steps if step.append.head is not None and step.append.head.ready
        }
        return self.line.release(transaction, pools) if pools else []

    def _outcome(self, now_us: int, head: Head, reported: Reported) -> _Step:
        outcome = reported.outcome
        event = new_event(outcome, cause=f"claim:{outcome.nonce}", actor=ACTOR)

        def after(phase: Phase, **columns: Any) -> Head:
            return head_with(
                head,
                **{
                    "nonce": "",
                    "boot": "",
                    "ready": False,
                    "published_us": 0,
                    "phase": phase.value,
                    **columns,
                },
            )

        match outcome:
            case ToolExecutionCompleted() | ToolExecutionFailed():
                return _Step(_append(head, [event], after(Phase.DONE), None), head.stage_key, is_final=True)
            case ExecutionAttemptFailed():
                # The store's clock judges it, whatever the worker's clock made of the moment.
                due = _due(head, "retry", now_us + reported.wait_us if reported.wait_us else outcome.again_us)
                return _Step(_append(head, [event], after(Phase.RETRY_WAIT), due), head.stage_key)
            case ExecutionReleased():
                columns, due = self._given_back(now_us, head, reported.wait_us)
                return _Step(_append(head, [event], after(Phase.QUEUED, **columns), due), head.stage_key)
            case ReconciliationRequired():
                due = _due(head, "reconcile", now_us + self.settings.look_again_ms * 1_000)
                return _Step(
                    _append(head, [event], after(Phase.RECONCILIATION_REQUIRED), due), head.stage_key
                )
            case _:
                assert_never(outcome)

    def _given_back(self, now_us: int, head: Head, wait_us: int) -> tuple[dict[str, Any], Due]:
        # What has to wait counts as published meanwhile: it keeps its place in the window, so a pool that
        # cannot start anything is not offered the whole line.
        again_us = now_us + (wait_us or self.settings.release_again_ms * 1_000)
        columns = {
            "ready": True,
            "published_us": now_us if wait_us else 0,
            "attempt": max(0, head.attempt - 1),
        }
        return columns, _due(head, "release", again_us)

    @staticmethod
    def _resolution(transaction: LedgerTransaction, head: Head, reported: Reported) -> _Step | None:
        """What settles an unknown outcome by itself: the signed receipt of the very claim that was given up.

        It can only say that the effect happened.
        """
        outcome = reported.outcome
        if head.phase != Phase.RECONCILIATION_REQUIRED.value or not isinstance(
            outcome, ToolExecutionCompleted
        ):
            return None
        unknown = transaction.events([head.stream])[head.stream][-1]
        if unknown.type != ReconciliationRequired.__name__ or unknown.body()["nonce"] != outcome.nonce:
            return None
        resolved = ReconciliationResolved(
            verdict="executed", by=ACTOR, reason="its own outcome came in late", sealed=outcome.sealed
        )
        event = new_event(resolved, cause=f"claim:{outcome.nonce}", actor=ACTOR)
        after = head_with(head, phase=Phase.DONE.value, ready=False, published_us=0, nonce="", boot="")
        return _Step(_append(head, [event], after, None), head.stage_key, is_final=True)

    def _late(self, transaction: LedgerTransaction, reported: Reported) -> str:
        """What an outcome is whose claim no longer stands: known already, evidence, or a contradiction."""
        stream = invocation_stream(reported.invocation_id)
        events = transaction.events([stream]).get(stream, [])
        payload = reported.outcome.to_bytes()
        if any(event.payload == payload or _resolves(event, reported.outcome) for event in events):
            return ReportFate.KNOWN
        if isinstance(reported.outcome, ExecutionReleased):
            return ReportFate.KNOWN  # nothing ran, and nobody waits for it any more
        fate = ReportFate.CONTRADICTED if _contradicts(events, reported.outcome) else ReportFate.LATE
        word = OutcomeContradicted if fate == ReportFate.CONTRADICTED else LateOutcomeRecorded
        evidence = word(
            nonce=reported.outcome.nonce,
            outcome={"type": type(reported.outcome).__name__, "payload": reported.outcome.to_json()},
        )
        note = new_event(evidence, cause=f"claim:{reported.outcome.nonce}", actor=ACTOR)
        beside = transaction.events([evidence_stream(reported.invocation_id)])
        if any(note.payload == event.payload for events in beside.values() for event in events):
            return ReportFate.KNOWN
        transaction.append([_evidence_append(reported.invocation_id, [note], reported.stage)])
        return fate

    def _evidence(
        self, transaction: LedgerTransaction, outcomes: Sequence[Reported], fates: Mapping[str, str]
    ) -> None:
        appends = [
            _evidence_append(
                outcome.invocation_id,
                [
                    new_event(word, cause=f"claim:{outcome.outcome.nonce}", actor=ACTOR)
                    for word in outcome.evidence
                ],
                outcome.stage,
            )
            for outcome in outcomes
            if outcome.evidence and fates[outcome.invocation_id] != ReportFate.KNOWN
        ]
        if appends:
            transaction.append(appends)

    # --- what must not run ---------------------------------------------------------------------------

    def reject(self, work: Work, found: PermitMismatch, worker: str) -> bool:
        """End what was not allowed as it stands, and record the security event; False where it moved since.

        Only for a difference under a valid seal. Raises LedgerUnavailableError.
        """
        sentence = f"{found.field}: {found.detail}"
        head = work.head
        with self.ledger.write(_keys(head.id, head.stage_key)) as transaction:
            step = _ended(head, Reason(code="PERMIT_MISMATCH", sentence=sentence), work.cause)
            if transaction.append([step.append]):
                return False
            transaction.append([_mismatch_append(work, found, worker)])
            hints = self._after_moves(transaction, [step])
        self._publish(hints)
        self.waker.wake("relay")
        return True

    def note_mismatch(self, work: Work, found: PermitMismatch, worker: str) -> None:
        """Record a security event about a permit that no trusted key sealed; the invocation does not move."""
        note = _mismatch_append(work, found, worker)
        with self.ledger.write() as transaction:
            beside = transaction.events([note.stream]).get(note.stream, [])
            if all(event.payload != note.events[0].payload for event in beside):
                transaction.append([note])
        self.waker.wake("relay")

    # --- liveness ------------------------------------------------------------------------------------

    def beat(self, boot: Boot) -> None:
        """Write a boot's row; raises LedgerUnavailableError."""
        with self.ledger.write() as transaction:
            transaction.beat(boot)

    def store_now_us(self) -> int:
        """The store's clock."""
        with self.ledger.read() as view:
            return view.now_us

    def claims_of(self, invocation_ids: Iterable[str]) -> dict[str, Head]:
        """The heads behind these ids, for whoever has an outcome of a claim that is not its own."""
        with self.ledger.read() as view:
            return heads_by_id(view, invocation_ids)

    def _publish(self, hints: Sequence[Hint]) -> None:
        if not hints:
            return
        self.faults.reach("dispatch.before_publish")
        try:
            self.publisher.publish(hints)
        except BrokerUnavailableError:
            return  # the sweep publishes them again
        self.faults.reach("dispatch.after_publish")


@dataclass(frozen=True, slots=True)
class _Step:
    """One move of one invocation, about to be appended."""

    append: Append
    stage: StageKey
    is_claim: bool = False
    is_final: bool = False


def heads_by_id(view: LedgerView, invocation_ids: Iterable[str]) -> dict[str, Head]:
    """Invocation → head, of those that exist."""
    heads = view.heads(invocation_stream(identifier) for identifier in invocation_ids)
    return {stream.id: head for stream, head in heads.items()}


def released(
    invocation_id: str, stage: StageKey, nonce: str, attempt: int, reason: Reason, wait_us: int = 0
) -> Reported:
    """The report of a claim that never began."""
    outcome = ExecutionReleased(nonce=nonce, attempt=attempt, reason=reason)
    return Reported(invocation_id, outcome, stage, wait_us=wait_us)


def outcome_from(name: str, payload: JsonObject) -> Outcome:
    """The outcome that was written down as its type's name and JSON; raises KeyError and ValidationError."""
    return _OUTCOMES[name].model_validate(payload)


def _locks(items: Iterable[Claim | Reported]) -> set[str]:
    return set().union(*(_keys(item.invocation_id, item.stage) for item in items))


def _keys(invocation_id: str, stage: StageKey) -> set[str]:
    return {f"invocation:{invocation_id}", f"stage:{stage.tenant}/{stage.session}/{stage.stage}"}


def _due(head: Head, what: str, at_us: int) -> Due:
    return Due(head.kind, head.id, what, at_us)


def _append(head: Head, events: Sequence[NewEvent], after: Head, due: Due | None) -> Append:
    return Append(head.stream, head.version, events, after, due, head.tenant, head.session)


def _evidence_append(invocation_id: str, events: Sequence[NewEvent], stage: StageKey) -> Append:
    return Append(evidence_stream(invocation_id), -1, events, tenant=stage.tenant, session=stage.session)


def _mismatch_append(work: Work, found: PermitMismatch, worker: str) -> Append:
    payload = PermitMismatched(field=found.field, detail=found.detail, worker=worker)
    event = new_event(payload, cause=work.cause, actor=worker)
    return _evidence_append(work.invocation_id, [event], work.head.stage_key)


def _ended(head: Head, reason: Reason, cause: str) -> _Step:
    """The final move of what will not run (again): a rejection before the first start, a failure after it."""
    payload: Word
    if head.started:
        detail = FailureDetail(code=reason.code, sentence=reason.sentence, recoverable=False, began=False)
        payload = ToolExecutionFailed(nonce="", failure=detail)
    else:
        payload = ToolExecutionRejected(reason=reason)
    event = new_event(payload, cause=cause, actor=ACTOR)
    after = head_with(head, phase=Phase.DONE.value, ready=False, published_us=0, nonce="", boot="")
    return _Step(_append(head, [event], after, None), head.stage_key, is_final=True)


def _returned(now_us: int, head: Head, claim: Claim, code: str, sentence: str) -> _Step:
    """Back to governance: the permit is not good any more, which is no verdict on the invocation."""
    payload = PermitReturned(reason=Reason(code=code, sentence=sentence), permit_digest=claim.permit_digest)
    event = new_event(payload, cause=claim.cause, actor=ACTOR)
    after = head_with(head, phase=Phase.DECIDING.value, ready=False, published_us=0)
    return _Step(_append(head, [event], after, _due(head, "decide", now_us)), head.stage_key)


def _stop_reason(head: Head | None, nonce: str) -> str | None:
    if head is None or head.phase != Phase.RUNNING.value or head.nonce != nonce:
        return "CLAIM_LOST"
    return "CANCELLED" if head.cancel else None


def _phase_fault(head: Head, events: Sequence[StoredEvent]) -> str | None:
    """Whether head and events tell the same story: a head put back would offer what has already run."""
    phase, started = NEW, False
    for event in events:
        after = next_phase(phase, event.type, started=started)
        if after is None:
            return f"{event.type} at version {event.version} is no legal move from {phase}"
        phase, started = after, started or event.type == "ToolExecutionStarted"
    if phase != head.phase or events[-1].version != head.version:
        return f"events say {phase} at {events[-1].version}, the head {head.phase} at {head.version}"
    return None


def _work(
    head: Head, events: Sequence[StoredEvent], requested: ToolInvocationRequested, arguments: JsonObject
) -> Work:
    granted = _standing_grant(events)
    permit = None if granted is None else Permit.model_validate(granted.body()["permit"])
    digest = "" if permit is None else permit.digest
    return Work(
        head=head,
        requested=requested,
        permit=permit,
        permit_digest=digest,
        action=_action(requested, sha256_hex(canonical(arguments))),
        request=ToolRequest(tool=requested.tool, arguments=arguments),
        told_before=_told_before(head, events, requested),
        permit_uses=_uses(events, digest),
        releases=_releases(events),
        cause=f"event:{(granted or events[-1]).seq}",
    )


def _action(requested: ToolInvocationRequested, arguments_hash: str) -> Action:
    return Action(
        tenant=requested.tenant,
        client=requested.client,
        subject=requested.subject,
        session=requested.session,
        stage=requested.stage,
        route=requested.route,
        tool=requested.tool,
        contract_digest=requested.contract_digest,
        arguments_hash=arguments_hash,
        pool=requested.capability_pool,
        tier=requested.tier,
        repeat=requested.repeat,
    )


def _told_before(
    head: Head, events: Sequence[StoredEvent], requested: ToolInvocationRequested
) -> tuple[tuple[str, object], ...]:
    names = ("tenant", "client", "session", "stage", "tool", "contract_digest", "pool")
    told: list[tuple[str, object]] = [(name, getattr(head, name)) for name in names]
    told.append(("arguments_hash", requested.arguments_hash))
    for event in events:
        if event.type == "ApprovalRequested":
            snapshot = event.body()["snapshot"]
            told += [
                (name, snapshot[name]) for name in (*names[:-1], "arguments_hash", "subject", "route", "tier")
            ]
    return tuple(told)


def _standing_grant(events: Sequence[StoredEvent]) -> StoredEvent | None:
    for event in reversed(events):
        if event.type == "ApprovalGranted":
            return event
        if event.type == "PermitReturned":
            return None
    return None


def _uses(events: Sequence[StoredEvent], permit_digest: str) -> int:
    uses = 0
    for event in events:
        if event.type == "ToolExecutionStarted" and event.body()["permit_digest"] == permit_digest:
            uses += 1
        elif event.type == "ExecutionReleased":
            uses = max(0, uses - 1)
    return uses


def _releases(events: Sequence[StoredEvent]) -> int:
    count = 0
    for event in events:
        if event.type == "ExecutionReleased":
            count += 1
        elif event.type in ("ExecutionAttemptFailed", "ExecutionAbandoned"):
            count = 0
    return count


def _resolves(event: StoredEvent, outcome: Outcome) -> bool:
    """Whether this event is what became of that late outcome."""
    if event.type != ReconciliationResolved.__name__ or not isinstance(outcome, ToolExecutionCompleted):
        return False
    return bool(event.body()["sealed"] == outcome.sealed.to_json())


def _contradicts(events: Sequence[StoredEvent], outcome: Outcome) -> bool:
    """Whether a verdict stands that says something else than this outcome about what happened."""
    if not events:
        return False
    last = events[-1]
    ran = isinstance(outcome, ToolExecutionCompleted)
    if last.type == "ReconciliationResolved":
        return bool((last.body()["verdict"] == "executed") != ran)
    # Two attempts of what may be repeated may both have completed; that is late, and no contradiction.
    return last.type == "ToolExecutionFailed" and ran
