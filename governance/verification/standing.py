"""What stands beside the events: each head is what its events fold to, each wait has its due row. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from governance.ledger import Head
from governance.verification.fault import FaultCode, Faults
from governance.verification.record import StreamRecord
from interlock.event import StoredEvent
from interlock.phase import Phase
from interlock.state import ToolInvocationRecord


def check_order(record: StreamRecord, faults: Faults) -> bool:
    """Whether a stream's versions are dense and its time never goes back; the head is as far as they are."""
    is_dense = True
    before: StoredEvent | None = None
    for version, event in enumerate(record.events, 1):
        if event.version != version and is_dense:
            said = f"version {event.version} of {event.stream} stands where {version} belongs"
            faults.add(event.seq, FaultCode.VERSION_GAP, said)
            is_dense = False
        if before is not None and event.at_us < before.at_us:
            faults.add(event.seq, FaultCode.TIME_BACK, "it is earlier than the one before in its stream")
        before = event
    last = record.events[-1].version if record.events else 0
    if record.head.version != last or not record.events:
        said = f"the head of {record.head.stream} is at version {record.head.version}, its events at {last}"
        faults.add(_seq_of(record), FaultCode.HEAD_DIFFERS, said)
    return is_dense


def check_standing(record: StreamRecord, folded: ToolInvocationRecord, faults: Faults) -> None:
    """Compare an invocation's head and due row with what its events fold to."""
    for column, said, true in _compared(record.head, folded):
        if said != true:
            detail = f"the head of {record.head.stream} says {column} {said!r}, its events say {true!r}"
            faults.add(_seq_of(record), FaultCode.HEAD_DIFFERS, detail)
    waits = folded.phase != Phase.DONE.value
    if waits and record.due is None:
        said = f"{record.head.stream} is {folded.phase} and nothing falls due for it"
        faults.add(_seq_of(record), FaultCode.DUE_MISSING, said)
    if not waits and record.due is not None:
        detail = f"{record.head.stream} is final and {record.due.what} falls due for it"
        faults.add(_seq_of(record), FaultCode.DUE_STRAY, detail)


def _compared(head: Head, folded: ToolInvocationRecord) -> Iterator[tuple[str, Any, Any]]:
    yield "phase", head.phase, folded.phase
    yield "attempt", head.attempt, folded.attempt
    yield "nonce", head.nonce, folded.nonce or ""
    yield "started", head.started, folded.started_at_us is not None
    yield "accepted_seq", head.accepted_seq, folded.position
    yield "tenant", head.tenant, folded.tenant
    yield "session", head.session, folded.session
    yield "stage", head.stage, folded.stage
    yield "client", head.client, folded.client
    yield "pool", head.pool, folded.pool
    yield "action_digest", head.action_digest, folded.action_digest


def _seq_of(record: StreamRecord) -> int | None:
    return record.events[-1].seq if record.events else None
