"""The functions on the ledger that whoever executes may call: load, claim, report, reject, look, beat.

Each is one transaction at most, written once against the ledger's port. A claim that loses writes nothing; an
outcome that conflicts is written again while its claim stands, and is evidence afterwards. Never runs a tool,
never verifies a seal, and publishes hints only after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TypeVar

from governance.again import again_at_once
from governance.execution.attempt import Claim, Claimant, Claimed, claim_step, stale_step
from governance.execution.outcome import (
    Outcome,
    Reported,
    ReportFate,
    Written,
    contradicts,
    outcome_from,
    outcome_step,
    released,
    resolution,
    resolves,
)
from governance.execution.step import (
    ACTOR,
    RUNNING,
    Step,
    ended,
    evidence_append,
    keys_of,
    mismatch_append,
    stop_reason,
)
from governance.execution.work import CLAIMABLE, Unseal, Unusable, Work, read_work
from governance.ledger import Boot, Head, Ledger, LedgerTransaction
from governance.line import Line
from interlock.clock import boottime_ns
from interlock.decision import Reason
from interlock.errors import BrokerUnavailableError, CommitUnknownError, LedgerUnavailableError
from interlock.event import (
    ExecutionReleased,
    LateOutcomeRecorded,
    OutcomeContradicted,
    StoredEvent,
    Stream,
    evidence_stream,
    invocation_stream,
    new_event,
)
from interlock.fault import FaultPoints
from interlock.hint import Hint, HintPublisher, Waker
from interlock.permit import PermitMismatch
from interlock.settings import Settings

__all__ = [
    "CLAIMABLE",
    "Claim",
    "Claimant",
    "Claimed",
    "Execution",
    "Outcome",
    "ReportFate",
    "Reported",
    "Unseal",
    "Unusable",
    "Work",
    "Written",
    "outcome_from",
    "released",
]

logger = logging.getLogger(__name__)
Item = TypeVar("Item", Claim, Reported)

ROUNDS_MAX = 8
"""How often a report reads again what another writer moved meanwhile; nobody moves one stream that often."""


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
            stream.id: _read(heads[stream], events[stream], self.unseal)
            for stream in streams
            if stream in heads and stream in events
        }

    def stop_reasons(self, claims: Mapping[str, str]) -> dict[str, str]:
        """Of these claims (invocation → nonce), those that must end now, with the code why.

        Raises LedgerUnavailableError: whoever has not begun must not begin then.
        """
        with self.ledger.read() as view:
            heads = view.heads(invocation_stream(identifier) for identifier in claims)
        found = {head.id: head for head in heads.values()}
        reasons = {
            identifier: stop_reason(found.get(identifier), nonce) for identifier, nonce in claims.items()
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
            won, hints, moved, seen_ns = again_at_once(lambda: self._claimed(claimant, claims))
        except CommitUnknownError:
            return self._after_unknown_commit(claims, start_by_ns)
        self.faults.reach("claim.after_commit")
        self._publish(hints)
        if tell or moved:
            self.waker.wake("relay")
        if moved:
            self.waker.wake("governor")
        return Claimed(frozenset(won), start_by_ns, seen_boottime_ns=seen_ns)

    def _claimed(self, claimant: Claimant, claims: Sequence[Claim]) -> tuple[set[str], list[Hint], bool, int]:
        with self.ledger.write(_locks(claims)) as transaction:
            return *self._claim_in(transaction, claimant, claims), self.boottime()

    def _claim_in(
        self, transaction: LedgerTransaction, claimant: Claimant, claims: Sequence[Claim]
    ) -> tuple[set[str], list[Hint], bool]:
        judged = self._judged(transaction, claimant, claims)
        lost = transaction.append([step.append for step in judged])
        stood = [step for step in judged if step.append.stream not in lost]
        final = {step.stage for step in stood if step.is_final}
        gained = self.line.advance(transaction, final) if final else set()
        hints = self.line.release(transaction, {claimant.pool} | gained) if stood else []
        won = {step.append.stream.id for step in stood if step.is_claim}
        return won, hints, len(won) < len(stood)

    def _judged(
        self, transaction: LedgerTransaction, claimant: Claimant, claims: Sequence[Claim]
    ) -> list[Step]:
        wanted = _by_stream(claims)
        heads = transaction.heads(stream for stream, _ in wanted)
        now_us, epoch, batch = transaction.now_us, transaction.epoch(), len(claims)
        steps: list[Step] = []
        for stream, claim in wanted:
            head = heads.get(stream)
            if head is None or head.version != claim.version or head.phase not in CLAIMABLE or not head.ready:
                continue
            try:
                steps.append(claim_step(self.settings, now_us, epoch, head, claimant, claim, batch))
            except Exception:
                # Nothing is written of it, and the others of its envelope go on.
                logger.exception("%s cannot be claimed", claim.invocation_id)
        return steps

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

    def give_back_stale(self, work: Work) -> bool:
        """Return an invocation whose permit names an older control epoch to governance; whether it moved.

        For whoever cannot even claim it. Raises LedgerUnavailableError.
        """
        head, permit = work.head, work.permit
        if permit is None:
            return False
        with self.ledger.write(keys_of(head.id, head.stage_key)) as transaction:
            epoch = transaction.epoch()
            if epoch == permit.terms.epoch:
                return False
            step = stale_step(transaction.now_us, epoch, head, permit, work.cause)
            if transaction.append([step.append]):
                return False
            hints = self.line.release(transaction, {head.pool})
        self._publish(hints)
        self.waker.wake("relay")
        self.waker.wake("governor")
        return True

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
            done, hints = again_at_once(partial(self._written, open_outcomes))
            self.faults.reach("report.after_commit")
            fates |= done
            self._publish(hints)
            self.waker.wake("relay")
            open_outcomes = [outcome for outcome in open_outcomes if outcome.invocation_id not in done]
            if not open_outcomes:
                return fates
        raise LedgerUnavailableError(f"{len(open_outcomes)} outcomes conflicted {ROUNDS_MAX} times")

    def _written(self, outcomes: Sequence[Reported]) -> tuple[dict[str, str], list[Hint]]:
        with self.ledger.write(_locks(outcomes)) as transaction:
            return self._report_in(transaction, outcomes)

    def _report_in(
        self, transaction: LedgerTransaction, outcomes: Sequence[Reported]
    ) -> tuple[dict[str, str], list[Hint]]:
        wanted = _by_stream(outcomes)
        heads = transaction.heads(stream for stream, _ in wanted)
        steps: list[Step] = []
        fates: dict[str, str] = {}
        for stream, outcome in wanted:
            head = heads.get(stream)
            if head is not None and head.phase == RUNNING and head.nonce == outcome.nonce:
                steps.append(outcome_step(self.settings, transaction.now_us, head, outcome))
                fates[outcome.invocation_id] = ReportFate.RECORDED
            elif head is not None and (step := resolution(transaction, head, outcome)) is not None:
                steps.append(step)
                fates[outcome.invocation_id] = ReportFate.RECORDED
            else:
                fates[outcome.invocation_id] = self._late(transaction, outcome)
        lost = transaction.append([step.append for step in steps])
        stood = [step for step in steps if step.append.stream not in lost]
        done = {outcome.invocation_id: outcome for stream, outcome in wanted if stream not in lost}
        self._evidence(transaction, list(done.values()), fates)
        return {identifier: fates[identifier] for identifier in done}, self._after_moves(transaction, stood)

    def _after_moves(self, transaction: LedgerTransaction, steps: Sequence[Step]) -> list[Hint]:
        """Release what these moves make way for: successors of what ended, and what was given back."""
        final = {step.stage for step in steps if step.is_final}
        pools = self.line.advance(transaction, final) if final else set()
        pools |= {
            step.append.head.pool for step in steps if step.append.head is not None and step.append.head.ready
        }
        return self.line.release(transaction, pools) if pools else []

    def _late(self, transaction: LedgerTransaction, reported: Reported) -> str:
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

    def _evidence(
        self, transaction: LedgerTransaction, outcomes: Sequence[Reported], fates: Mapping[str, str]
    ) -> None:
        appends = [
            evidence_append(
                outcome.invocation_id,
                [new_event(word, cause=f"claim:{outcome.nonce}", actor=ACTOR) for word in outcome.evidence],
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
        with self.ledger.write(keys_of(head.id, head.stage_key)) as transaction:
            step = ended(head, Reason(code="PERMIT_MISMATCH", sentence=sentence), work.cause)
            if transaction.append([step.append]):
                return False
            transaction.append([mismatch_append(work, found, worker)])
            hints = self._after_moves(transaction, [step])
        self._publish(hints)
        self.waker.wake("relay")
        return True

    def note_mismatch(self, work: Work, found: PermitMismatch, worker: str) -> None:
        """Record a security event about a permit that no trusted key sealed; the invocation does not move."""
        note = mismatch_append(work, found, worker)
        with self.ledger.write([str(note.stream)]) as transaction:
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

    def _publish(self, hints: Sequence[Hint]) -> None:
        if not hints:
            return
        self.faults.reach("dispatch.before_publish")
        try:
            self.publisher.publish(hints)
        except BrokerUnavailableError:
            return  # the sweep publishes them again
        self.faults.reach("dispatch.after_publish")


def _read(head: Head, events: Sequence[StoredEvent], unseal: Unseal) -> Work | Unusable:
    """As `read_work`; what cannot even be read stops nobody else that is read with it."""
    try:
        return read_work(head, events, unseal)
    except Exception as error:
        logger.exception("%s cannot be read", head.id)
        return Unusable(head.id, "INTERNAL", f"reading it failed: {type(error).__name__}")


def _by_stream(items: Iterable[Item]) -> list[tuple[Stream, Item]]:
    """Each with its stream, in the order in which every writer takes them."""
    return sorted(((invocation_stream(item.invocation_id), item) for item in items), key=itemgetter(0))


def _locks(items: Iterable[Claim | Reported]) -> set[str]:
    return {key for item in items for key in keys_of(item.invocation_id, item.stage)}
