"""Dispatching what waits: publishes what is ready and was not, and again what was and nobody claimed.

The net, not the road: governor and workers publish what they release themselves. Publishing twice is
harmless, publishing too much is not, so a hint goes out again only where the queue has lost some, at doubling
intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from governance.ledger import Due, Head, Ledger, LedgerTransaction
from governance.line import Line, envelopes
from interlock.hint import Hint
from interlock.phase import Phase
from interlock.settings import Settings

AGAIN_US_MAX = 120_000_000


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
        with self.ledger.write([str(head.stream) for _, head in waiting]) as transaction:
            now = transaction.heads([head.stream for _, head in waiting])
            current = [(due, now[head.stream]) for due, head in waiting if now[head.stream] == head]
            queued = [(due, head) for due, head in current if head.phase == Phase.QUEUED.value]
            pools = self.line.advance(transaction, {head.stage_key for _, head in queued if not head.ready})
            pools |= {head.pool for _, head in queued if head.ready and not head.published_us}
            hints = self._republish(transaction, queued, queued_ids)
            self._look_later(transaction, [head for _, head in queued if not head.published_us])
            return hints + self.line.release(transaction, pools)

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
        pools = sorted({head.pool for _, head in lost})
        return [
            hint
            for pool in pools
            for hint in envelopes(pool, [h for _, h in lost if h.pool == pool], self.settings.envelope_max)
        ]

    def _look_later(self, transaction: LedgerTransaction, heads: Iterable[Head]) -> None:
        at_us = transaction.now_us + self.settings.look_again_ms * 1_000
        for head in heads:
            transaction.set_due(Due(head.kind, head.id, "release", at_us))


def _later(due: Due, head: Head, now_us: int) -> Due:
    """The next look at a published hint: twice as long after this one as this was after the last."""
    interval_us = max(due.at_us - head.published_us, 1)
    return due._replace(at_us=now_us + min(2 * interval_us, AGAIN_US_MAX))
