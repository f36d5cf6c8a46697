"""Plain heads, events and appends for tests of the ledger: where they stand matters, not what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from governance.ledger import Append, Due, Head, Ledger
from interlock.event import NewEvent, Stream, invocation_stream


def an_event(name: str = "ToolInvocationRequested", payload: bytes = b'{"n":1}') -> NewEvent:
    return NewEvent(name, payload, "submission:s-1", "governor")


def a_head(invocation_id: str, phase: str = "deciding", **columns: Any) -> Head:
    said = {
        "tenant": "default",
        "session": "s-1",
        "client": "local",
        "stage": "g-1",
        "pool": "pure",
        **columns,
    }
    return Head("invocation", invocation_id, phase=phase, **said)


def an_append(
    invocation_id: str,
    expected: int = 0,
    *,
    events: Sequence[NewEvent] | None = None,
    head: Head | None = None,
    due: str | None = "decide",
    due_us: int = 0,
) -> Append:
    """One invocation's append; with a head that is deciding and a due row unless told otherwise."""
    stream = invocation_stream(invocation_id)
    return Append(
        stream,
        expected,
        [an_event()] if events is None else events,
        a_head(invocation_id) if head is None else head,
        None if due is None else Due(*stream, due, due_us),
    )


def write(ledger: Ledger, *appends: Append) -> set[Stream]:
    """Append in a transaction of its own; the streams that lost."""
    with ledger.write() as transaction:
        return transaction.append(appends)


def head_of(ledger: Ledger, invocation_id: str) -> Head:
    stream = invocation_stream(invocation_id)
    with ledger.read() as view:
        return view.heads([stream])[stream]
