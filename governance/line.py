"""The line: which granted invocations may be offered to a pool now, in which order, and in which hints.

One function for everybody who releases (the governor for what is at the head, a reporter for what its outcome
frees, the sweep for the rest). It marks rows; whoever commits publishes the hints afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from governance.ledger import Due, Head, LedgerTransaction, StageKey
from interlock.event import StreamKind
from interlock.hint import Hint
from interlock.phase import Phase
from interlock.settings import Settings
from interlock.tier import Pool


@dataclass(frozen=True, slots=True)
class Line:
    """Releases what is ready, within each pool's window."""

    settings: Settings

    def advance(self, transaction: LedgerTransaction, stages: Iterable[StageKey]) -> set[str]:
        """Let the next of each stage step forward, if it is granted; returns the pools that gained one.

        A stage is held by its first open invocation whatever that waits for, so an approval, a retry or an
        unknown outcome keeps its successors in their place.
        """
        first = [line[0] for line in transaction.stage_lines(set(stages), limit=1).values() if line]
        steps = [head for head in first if head.phase == Phase.QUEUED.value and not head.ready]
        if steps:
            transaction.mark_ready([head.id for head in steps])
        return {head.pool for head in steps}

    def release(self, transaction: LedgerTransaction, pools: Iterable[str]) -> list[Hint]:
        """Mark as many ready ids published as each pool's window has room for; returns their hints."""
        wanted = sorted(set(pools))
        if not wanted:
            return []
        out = transaction.published_unclaimed()
        hints: list[Hint] = []
        for pool in wanted:
            room = self.settings.window(pool) - out.get(pool, 0)
            heads = transaction.next_ready(pool, room) if room > 0 else []
            hints.extend(envelopes(pool, heads, self.settings.envelope_max))
        self._mark(transaction, [identifier for hint in hints for identifier in hint.invocation_ids])
        return hints

    def _mark(self, transaction: LedgerTransaction, invocation_ids: Sequence[str]) -> None:
        if not invocation_ids:
            return
        again_us = transaction.now_us + self.settings.release_again_ms * 1_000
        kind = StreamKind.INVOCATION.value
        dues = [Due(kind, identifier, "release", again_us) for identifier in invocation_ids]
        transaction.mark_published(invocation_ids, dues)


def envelopes(pool: str, heads: Sequence[Head], ids_max: int) -> list[Hint]:
    """One id a hint, except for batchable tools of the pure pool, which share up to `ids_max`."""
    shared = [head.id for head in heads if pool == Pool.PURE.value and head.batchable and not head.alone]
    together = set(shared)
    hints = [Hint(pool, tuple(shared[at : at + ids_max])) for at in range(0, len(shared), ids_max)]
    return hints + [Hint(pool, (head.id,)) for head in heads if head.id not in together]
