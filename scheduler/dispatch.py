"""Dispatching what waits: publishes what is ready and was not, and again what was and nobody claimed.

The net, not the road: governor and workers publish what they release themselves. Publishing twice is
harmless, publishing too much is not, so a hint goes out again only where the queue has lost some, at doubling
intervals and in ever smaller envelopes. What nobody claims however often it is published goes back to
governance, alone from then on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from governance import lock
from governance.ledger import Append, Due, Head, Ledger, LedgerTransaction, head_with
from governance.line import Line, envelopes
from interlock.decision import Reason
from interlock.errors import InterlockError
from interlock.event import PermitReturned, StoredEvent, new_event
from interlock.hint import Hint
from interlock.permit import Permit
from interlock.phase import Phase
from interlock.settings import Settings

ACTOR = "scheduler"
AGAIN_US_MAX = 120_000_000
AGAIN_DOUBLINGS_MAX = 4
"""So often the interval has doubled when a hint was published five times and claimed by nobody."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Looks at queued invocations whose due row came."""

    ledger: Ledger
    line: Line
    settings: Settings

    def again(self, waiting: Sequence[tuple[Due, Head]], queued_ids: Mapping[str, int]) -> list[Hint]:
        """The hints to publish for queued invocations that are due; `queued_ids`: pool → ids in its queue."""
        if not waiting:
            return []
        with self.ledger.write(lock.of_line(head for _, head in waiting)) as transaction:
            now = transaction.heads([head.stream for _, head in waiting])
            current = [(due, now[head.stream]) for due, head in waiting if now[head.stream] == head]
            queued = [(due, head) for due, head in current if head.phase == Phase.QUEUED.value]
            pools = self.line.advance(transaction, {head.stage_key for _, head in queued if not head.ready})
            pools |= {head.pool for _, head in queued if head.ready and not head.published_us}
            returned = self._return(transaction, queued, queued_ids)
            pools |= {head.pool for head in returned}
            queued = [(due, head) for due, head in queued if head not in returned]
            hints = self._republish(transaction, queued, queued_ids)
            self._look_later(transaction, [head for _, head in queued if not head.published_us])
            return hints + self.line.release(transaction, pools)

    def _return(
        self,
        transaction: LedgerTransaction,
        queued: Iterable[tuple[Due, Head]],
        queued_ids: Mapping[str, int],
    ) -> list[Head]:
        """Give back to governance what was published again and again, and that no pool claimed."""
        out = transaction.published_unclaimed()
        refused = [
            head
            for due, head in queued
            if head.published_us
            and due.at_us - head.published_us >= self._patience_us
            and queued_ids.get(head.pool, 0) < out.get(head.pool, 0)
        ]
        if not refused:
            return []
        events = transaction.events([head.stream for head in refused])
        appends = [_returned(head, events[head.stream], transaction.now_us) for head in refused]
        lost = transaction.append(appends)
        return [head for head in refused if head.stream not in lost]

    @property
    def _patience_us(self) -> int:
        return min(self.settings.release_again_ms * 1_000 << AGAIN_DOUBLINGS_MAX, AGAIN_US_MAX)

    def _republish(
        self,
        transaction: LedgerTransaction,
        queued: Iterable[tuple[Due, Head]],
        queued_ids: Mapping[str, int],
    ) -> list[Hint]:
        published = [(due, head) for due, head in queued if head.published_us]
        out = transaction.published_unclaimed()
        lost = [
            (due, head) for due, head in published if queued_ids.get(head.pool, 0) < out.get(head.pool, 0)
        ]
        rearmed = [_later(due, head, transaction.now_us) for due, head in published]
        lost_ids = [head.id for _, head in lost]
        for due in rearmed:
            if due.id not in lost_ids:
                transaction.set_due(due)
        if lost_ids:
            transaction.mark_published(lost_ids, [due for due in rearmed if due.id in lost_ids])
        together: dict[tuple[str, int], list[Head]] = defaultdict(list)
        for due, head in lost:
            together[head.pool, self._ids_max(due, head)].append(head)
        return [
            hint
            for (pool, ids_max), heads in sorted(together.items(), key=itemgetter(0))
            for hint in envelopes(pool, heads, ids_max)
        ]

    def _ids_max(self, due: Due, head: Head) -> int:
        """How many ids a hint may carry that was lost: a quarter of the last one, each time.

        What ends the process that computes it takes its envelope with it and leaves no trace, so what was
        with it is soon offered without it.
        """
        waits = (due.at_us - head.published_us) // (self.settings.release_again_ms * 1_000 or 1)
        return max(1, self.settings.envelope_max >> 2 * waits.bit_length())

    def _look_later(self, transaction: LedgerTransaction, heads: Iterable[Head]) -> None:
        at_us = transaction.now_us + self.settings.look_again_ms * 1_000
        for head in heads:
            transaction.set_due(Due(head.kind, head.id, "release", at_us))


def _later(due: Due, head: Head, now_us: int) -> Due:
    """The next look at a published hint: twice as long after this one as this was after the last."""
    interval_us = max(due.at_us - head.published_us, 1)
    return due._replace(at_us=now_us + min(2 * interval_us, AGAIN_US_MAX))


def _returned(head: Head, events: Sequence[StoredEvent], now_us: int) -> Append:
    reason = Reason(
        code="TOOL_UNAVAILABLE", sentence="it was offered again and again, and no pool claimed it"
    )
    event = new_event(
        PermitReturned(reason=reason, permit_digest=_permit_digest(events)),
        cause=f"timer:release:{head.version}",
        actor=ACTOR,
    )
    # Whatever is wrong with it, it shares no envelope with others any more.
    after = head_with(head, phase=Phase.DECIDING.value, ready=False, published_us=0, alone=True)
    due = Due(head.kind, head.id, "decide", now_us)
    return Append(head.stream, head.version, [event], after, due, head.tenant, head.session)


def _permit_digest(events: Sequence[StoredEvent]) -> str:
    """Of the permit that stands; "" where it cannot be read, which may be why nobody claims it."""
    try:
        granted = next(event for event in reversed(events) if event.type == "ApprovalGranted")
        return Permit.model_validate(granted.body()["permit"]).digest
    except (StopIteration, KeyError, ValueError, InterlockError):
        return ""
