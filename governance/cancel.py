"""Cancelling: asks for the end of an invocation, and ends it at once where nothing runs.

What runs is ended by its supervisor, which reads the request from the ledger; nothing is signalled from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from governance import lock
from governance.decide import done, ending
from governance.ledger import Append, Head, Ledger, head_with
from governance.line import Line
from interlock.decision import Reason
from interlock.event import CancellationRequested, invocation_stream, new_event
from interlock.hint import Hint
from interlock.phase import Phase

_AT_ONCE = frozenset(
    (Phase.DECIDING.value, Phase.AWAITING_APPROVAL.value, Phase.QUEUED.value, Phase.RETRY_WAIT.value)
)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancellation did."""

    phase: str
    """Where the invocation stands now; `running` means that its supervisor will end it."""
    already_final: bool
    hints: tuple[Hint, ...] = ()
    """What its end let forward; publish them."""


def cancel(
    ledger: Ledger, line: Line, invocation_id: str, *, by: str, client: str | None = None, reason: str = ""
) -> Cancelled | None:
    """Ask for the end of one invocation; None where there is none, or where it is not `client`'s.

    `by` is `client:NAME` or `operator:NAME`. Asking again changes nothing.
    """
    stream = invocation_stream(invocation_id)
    with ledger.read() as view:
        found = view.heads([stream])
    while stream in found:
        with ledger.write(lock.of_line(found.values())) as transaction:
            head = transaction.heads([stream])[stream]
            if client not in (None, head.client):
                return None
            if not head.is_open or head.cancel:
                return Cancelled(head.phase, already_final=not head.is_open)
            due = transaction.due_of([stream]).get(stream)
            append = _append(head, by, reason)
            if append.head is not None and append.head.is_open:
                append = append._replace(due=due)
            if transaction.append([append]):
                continue
            after = append.head
            assert after is not None
            pools = set() if after.is_open else line.advance(transaction, [head.stage_key])
            return Cancelled(after.phase, already_final=False, hints=tuple(line.release(transaction, pools)))
    return None


def _append(head: Head, by: str, reason: str) -> Append:
    asked = new_event(CancellationRequested(by=by, reason=reason), cause=by, actor=by)
    after = head_with(head, cancel=True)
    events = [asked]
    if head.phase in _AT_ONCE:
        sentence = reason or "it was cancelled before it began"
        end = ending(head, Reason(code="CANCELLED", sentence=sentence))
        events.append(new_event(end, cause=f"invocation:{head.id}@{head.version + 1}", actor=by))
        after = done(after)
    return Append(head.stream, head.version, events, head=after, tenant=head.tenant, session=head.session)
