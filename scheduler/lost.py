"""What a lost claim means: another attempt where a second run does no harm, else an unknown outcome.

Never sends an effect again and never guesses an outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from governance import lock
from governance.ledger import Append, Due, Head, Ledger, LedgerTransaction, head_with
from governance.line import Line
from interlock.decision import Reason
from interlock.event import (
    ApprovalGranted,
    ExecutionAbandoned,
    FailureDetail,
    ReconciliationRequired,
    StoredEvent,
    ToolExecutionFailed,
    ToolExecutionStarted,
    invocation_stream,
    new_event,
    read_payload,
)
from interlock.fault import FaultPoints
from interlock.hint import Hint
from interlock.phase import Phase
from interlock.settings import Settings
from interlock.word import Word

logger = logging.getLogger(__name__)

ACTOR = "scheduler"
REMIND_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class _Claim:
    """The claim that stands, and how many attempts its permit covers."""

    started: ToolExecutionStarted
    attempts: int
    may_repeat: bool
    """What the request said, which the claim compared with the contract."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Ends the claims of dead boots."""

    ledger: Ledger
    line: Line
    settings: Settings
    faults: FaultPoints

    def settle(self, claims: Sequence[Head]) -> list[Hint]:
        """Settle running claims whose boot is dead, each only if it still stands as it was read."""
        if not claims:
            return []
        with self.ledger.write(lock.of_line(claims)) as transaction:
            hints = self._settle(transaction, claims)
            self.faults.reach("sweep.before_commit")
        self.faults.reach("sweep.after_commit")
        logger.warning("claims of dead processes settled: %d", len(claims))
        return hints

    def _settle(self, transaction: LedgerTransaction, claims: Sequence[Head]) -> list[Hint]:
        now = transaction.heads([head.stream for head in claims])
        standing = [head for head in claims if now[head.stream].nonce == head.nonce and head.nonce]
        events = transaction.events([head.stream for head in standing])
        appends = [
            self._append(now[head.stream], _claim_of(events[head.stream]), transaction.now_us)
            for head in standing
        ]
        transaction.append(appends)
        after = [append.head for append in appends if append.head is not None]
        final = {head.stage_key for head in after if not head.is_open}
        pools = self.line.advance(transaction, final)
        pools |= {head.pool for head in after if head.ready}
        return self.line.release(transaction, pools)

    def _append(self, head: Head, claim: _Claim, now_us: int) -> Append:
        payload, after, due = self._outcome(head, claim, now_us)
        event = new_event(payload, cause=f"timer:lease:{head.boot}", actor=ACTOR)
        return Append(
            invocation_stream(head.id),
            head.version,
            [event],
            head=after,
            due=due,
            tenant=head.tenant,
            session=head.session,
        )

    def _outcome(self, head: Head, claim: _Claim, now_us: int) -> tuple[Word, Head, Due | None]:
        reason = Reason(code="LEASE_LOST", sentence="the worker that claimed it is gone")
        idle = head_with(head, nonce="", boot="", published_us=0)
        if not (head.may_repeat and claim.may_repeat):
            unknown = ReconciliationRequired(nonce=head.nonce, reason=reason)
            waiting = head_with(idle, phase=Phase.RECONCILIATION_REQUIRED.value, ready=False)
            return unknown, waiting, Due(head.kind, head.id, "reconcile", now_us + REMIND_US)
        if head.cancel or head.attempt >= claim.attempts:
            return self._given_up(head, idle)
        alone = head.alone or claim.started.batch > 1
        again = ExecutionAbandoned(nonce=head.nonce, attempt=head.attempt, reason=reason, alone=alone)
        queued = head_with(idle, phase=Phase.QUEUED.value, ready=True, alone=alone)
        look_us = now_us + self.settings.look_again_ms * 1_000
        return again, queued, Due(head.kind, head.id, "release", look_us)

    @staticmethod
    def _given_up(head: Head, idle: Head) -> tuple[Word, Head, Due | None]:
        code = "CANCELLED" if head.cancel else "ATTEMPTS_EXHAUSTED"
        sentence = "cancelled while it ran" if head.cancel else f"lost its worker {head.attempt} times"
        failure = FailureDetail(code=code, sentence=sentence, recoverable=not head.cancel, began=True)
        final = head_with(idle, phase=Phase.DONE.value, ready=False)
        return ToolExecutionFailed(nonce=head.nonce, failure=failure), final, None


def _claim_of(events: Sequence[StoredEvent]) -> _Claim:
    started = next(event for event in reversed(events) if event.type == "ToolExecutionStarted")
    granted = next(event for event in reversed(events) if event.type == "ApprovalGranted")
    claim, grant = read_payload(started), read_payload(granted)
    assert isinstance(claim, ToolExecutionStarted)
    assert isinstance(grant, ApprovalGranted)
    # The claim compared the request with its contract; a head can have been changed since.
    return _Claim(claim, grant.permit.terms.attempts, bool(events[0].body().get("may_repeat")))
