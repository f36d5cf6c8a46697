"""What is still under way in a ledger, told from what only an unknown outcome holds up."""

from __future__ import annotations

from collections.abc import Collection

from governance.ledger import Head, StageKey

OPEN_PHASES = frozenset(("deciding", "queued", "running", "retry_wait"))


def held_of(heads: Collection[Head]) -> set[str]:
    """Those of which an earlier one of the same stage rests without being final."""
    first: dict[StageKey, int] = {}
    for head in heads:
        if head.phase in ("awaiting_approval", "reconciliation_required"):
            first[head.stage_key] = min(head.accepted_seq, first.get(head.stage_key, head.accepted_seq))
    return {head.id for head in heads if first.get(head.stage_key, head.accepted_seq) < head.accepted_seq}
