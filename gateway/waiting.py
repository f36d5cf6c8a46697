"""What an invocation that has not ended waits for, in a sentence that says what to do. Decides nothing."""

from __future__ import annotations

from governance.ledger import Head, LedgerView
from interlock.event import invocation_stream
from interlock.phase import Phase

_UNKNOWN = Phase.RECONCILIATION_REQUIRED.value


def waits_for(view: LedgerView, invocation_id: str) -> str | None:
    """What lets it go on; None for what has ended, runs, or is not there."""
    stream = invocation_stream(invocation_id)
    head = view.heads([stream]).get(stream)
    if head is None:
        return None
    match head.phase:
        case Phase.QUEUED.value:
            return _in_line(view, head)
        case Phase.AWAITING_APPROVAL.value:
            return f"waits for an approval: `interlock inbox`, then {_approve(head.id)}"
        case Phase.RETRY_WAIT.value:
            return "waits for the moment of its next attempt"
        case Phase.RECONCILIATION_REQUIRED.value:
            return f"waits until somebody finds out what became of it: {_reconcile(head.id)}"
        case _:
            return None


def _in_line(view: LedgerView, head: Head) -> str:
    if head.ready:
        return f"waits for a free place in pool {head.pool}"
    line = view.stage_lines([head.stage_key], limit=1).get(head.stage_key, [])
    if not line or line[0].id == head.id:
        return "waits for its release"
    first = line[0]
    todo = {_UNKNOWN: _reconcile(first.id), Phase.AWAITING_APPROVAL.value: _approve(first.id)}.get(
        first.phase
    )
    return f"waits behind {first.id}, which is {first.phase}" + (f"; {todo}" if todo else "")


def _approve(invocation_id: str) -> str:
    return f"`interlock approve {invocation_id}`"


def _reconcile(invocation_id: str) -> str:
    return f"`interlock reconcile show {invocation_id}`"
