"""The functions on the ledger for whoever executes: load, claim, record, report, reject, look, beat.

Each is one transaction at most, written once against the ledger's port. A claim that loses writes nothing; an
outcome that conflicts is written again while its claim stands, and is evidence afterwards. Never runs a tool,
never verifies a seal, and publishes hints only after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from governance.again import again_at_once
from governance.execution.attempt import (
    Attempt,
    Claim,
    Claimant,
    Claimed,
    Computed,
    attempt_step,
    attempts_of,
    computations_of,
    stale_step,
)
from governance.execution.evidence import put_evidence, put_late
from governance.execution.outcome import (
    Outcome,
    Reported,
    ReportFate,
    Written,
    outcome_from,
    outcome_step,
    released,
    resolution,
)
from governance.execution.step import (
    RUNNING,
    Step,
    ended,
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
from interlock.event import NewEvent, StoredEvent, Stream, invocation_stream
from interlock.fault import FaultPoints
from interlock.hint import Hint, HintPublisher, Waker
from interlock.permit import PermitMismatch
from interlock.settings import Settings

__all__ = [
    "CLAIMABLE",
    "Claim",
    "Claimant",
    "Claimed",
    "Computed",
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
        attempts = attempts_of(self.settings, claimant, claims)
        begun_ns = self.boottime()
        start_by_ns = begun_ns + self.settings.start_by_ms * 1_000_000
        self.faults.reach("claim.before_commit")
        try:
            won, hints, moved, seen_ns = again_at_once(partial(self._claimed, claimant, attempts))
        except CommitUnknownError:
            return self._after_unknown_commit(claims, start_by_ns)
        self.faults.reach("claim.after_commit")
        self._publish(hints)
        if tell or moved:
            self.waker.wake("relay")
        if moved:
            self.waker.wake("governor")
        return Claimed(frozenset(won), start_by_ns, seen_boottime_ns=seen_ns)

    def _claimed(
        self, claimant: Claimant, attempts: Sequence[Attempt]
    ) -> tuple[set[str], list[Hint], bool, int]:
        with self.ledger.write(_locks(attempt.claim for attempt in attempts)) as transaction:
            return *self._claim_in(transaction, claimant, attempts), self.boottime()

    def _claim_in(
        self, transaction: LedgerTransaction, claimant: Claimant, attempts: Sequence[Attempt]
    ) -> tuple[set[str], list[Hint], bool]:
        judged = self._judged(transaction, claimant, attempts)
        lost = transaction.append([step.append for _, step in judged])
        stood = [(attempt, step) for attempt, step in judged if step.append.stream not in lost]
        won = [attempt for attempt, step in stood if step.is_claim]
        put_evidence(transaction, [attempt.reported for attempt in won if attempt.reported is not None])
        final = {step.stage for _, step in stood if step.is_final}
        gained = self.line.advance(transaction, final) if final else set()
        hints = self.line.release(transaction, {claimant.pool} | gained) if stood else []
        return {attempt.claim.invocation_id for attempt in won}, hints, len(won) < len(stood)

    def _judged(
        self, transaction: LedgerTransaction, claimant: Claimant, attempts: Sequence[Attempt]
    ) -> list[tuple[Attempt, Step]]:
        heads = transaction.heads(attempt.stream for attempt in attempts)
        now_us, epoch = transaction.now_us, transaction.epoch()
        judged: list[tuple[Attempt, Step]] = []
        for attempt in attempts:
            head, version = heads.get(attempt.stream), attempt.claim.version
            if head is None or head.version != version or head.phase not in CLAIMABLE or not head.ready:
                continue
            try:
                step = attempt_step(self.settings, now_us, epoch, head, claimant, attempt)
            except Exception:
                # Nothing is written of it, and the others of its envelope go on.
                logger.exception("%s cannot be claimed", attempt.claim.invocation_id)
            else:
                judged.append((attempt, step))
        return judged

    def record(self, claimant: Claimant, computed: Sequence[Computed]) -> set[str]:
        """Append ToolExecutionStarted and the outcome of each of these computations whose claim stands up to
        the ledger, durably; the ids of those.

        Only for what has no effect: it ran before it was claimed, and of what cannot be claimed nothing is
        kept. That is judged, and moved on, as by `claim`. Raises LedgerUnavailableError and
        CommitUnknownError: whether they stand is seen by whoever looks next, and nobody need wait for it.
        """
        attempts = computations_of(self.settings, claimant, computed)
        won, hints, moved, _ = again_at_once(partial(self._claimed, claimant, attempts))
        self._publish(hints)
        self.waker.wake("relay")
        if moved:
            self.waker.wake("governor")
        return won

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
        left = _tellings(outcomes)
        for _ in range(ROUNDS_MAX):
            self.faults.reach("report.before_commit")
            done, hints = again_at_once(partial(self._written, left))
            self.faults.reach("report.after_commit")
            fates |= done
            self._publish(hints)
            self.waker.wake("relay")
            left = [telling for telling in left if telling.reported.invocation_id not in done]
            if not left:
                return fates
        raise LedgerUnavailableError(f"{len(left)} outcomes conflicted {ROUNDS_MAX} times")

    def _written(self, tellings: Sequence[_Telling]) -> tuple[dict[str, str], list[Hint]]:
        with self.ledger.write(_locks(telling.reported for telling in tellings)) as transaction:
            return self._report_in(transaction, tellings)

    def _report_in(
        self, transaction: LedgerTransaction, tellings: Sequence[_Telling]
    ) -> tuple[dict[str, str], list[Hint]]:
        heads = transaction.heads(telling.stream for telling in tellings)
        steps: list[Step] = []
        fates: dict[str, str] = {}
        for stream, reported, event in tellings:
            head = heads.get(stream)
            if head is not None and head.phase == RUNNING and head.nonce == reported.nonce:
                steps.append(outcome_step(self.settings, transaction.now_us, head, reported, event))
                fates[reported.invocation_id] = ReportFate.RECORDED
            elif head is not None and (step := resolution(transaction, head, reported)) is not None:
                steps.append(step)
                fates[reported.invocation_id] = ReportFate.RECORDED
            else:
                fates[reported.invocation_id] = put_late(transaction, reported)
        lost = transaction.append([step.append for step in steps])
        stood = [step for step in steps if step.append.stream not in lost]
        done = [telling.reported for telling in tellings if telling.stream not in lost]
        put_evidence(transaction, [one for one in done if fates[one.invocation_id] != ReportFate.KNOWN])
        hints = self._after_moves(transaction, stood)
        return {one.invocation_id: fates[one.invocation_id] for one in done}, hints

    def _after_moves(self, transaction: LedgerTransaction, steps: Sequence[Step]) -> list[Hint]:
        """Release what these moves make way for: successors of what ended, and what was given back."""
        final = {step.stage for step in steps if step.is_final}
        pools = self.line.advance(transaction, final) if final else set()
        pools |= {
            step.append.head.pool for step in steps if step.append.head is not None and step.append.head.ready
        }
        return self.line.release(transaction, pools) if pools else []

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


class _Telling(NamedTuple):
    """A report as it goes to the ledger, with the event it comes to while its claim stands."""

    stream: Stream
    reported: Reported
    event: NewEvent


def _tellings(reports: Iterable[Reported]) -> list[_Telling]:
    """Written before the ledger is asked, and in the order in which every writer takes them."""
    made = [_Telling(invocation_stream(one.invocation_id), one, one.event()) for one in reports]
    return sorted(made, key=attrgetter("stream"))


def _locks(items: Iterable[Claim | Reported]) -> set[str]:
    return {key for item in items for key in keys_of(item.invocation_id, item.stage)}
