"""Whole lives of invocations, as a ledger holds them: for tests of what follows the log."""

from __future__ import annotations

from collections.abc import Sequence

from governance.ledger import Append, Ledger
from interlock.canonical import sha256_hex
from interlock.event import (
    ApprovalGranted,
    NewEvent,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    ToolInvocationRequested,
    ToolResponseRecorded,
    invocation_stream,
    new_event,
)
from interlock.identifier import new_id
from interlock.permit import Permit, PermitTerms
from interlock.receipt import Receipt, SandboxReport, SealedReceipt
from interlock.seal import Seal
from interlock.word import Word
from tests.support.ledger import a_head

DIGEST = sha256_hex(b"an action")
SEAL = Seal(kid="k-1", root=DIGEST, signature="00" * 64)


def life(invocation_id: str, session: str = "s-1") -> list[NewEvent]:
    """Five events, from the request to the receipt."""
    words: list[Word] = [_requested(session), _granted(invocation_id), _started()]
    words += [ToolResponseRecorded(nonce="n-1", response={"ok": True}), _completed(invocation_id)]
    return [new_event(word, cause="submission:s", actor="test") for word in words]


def append_event(
    ledger: Ledger, invocation_id: str, event: NewEvent, *, version: int, session: str = "s-1"
) -> None:
    """One event in a transaction of its own, after `version`."""
    append_events(ledger, invocation_id, [event], version=version, session=session)


def append_events(
    ledger: Ledger, invocation_id: str, events: Sequence[NewEvent], *, version: int = 0, session: str = "s-1"
) -> None:
    """Events in one transaction, after `version`."""
    with ledger.write() as transaction:
        lost = transaction.append([an_append_of(invocation_id, events, version=version, session=session)])
    assert not lost


def an_append_of(
    invocation_id: str, events: Sequence[NewEvent], *, version: int = 0, session: str = "s-1"
) -> Append:
    head = a_head(invocation_id, session=session)
    return Append(
        invocation_stream(invocation_id), version, events, head, None, tenant="default", session=session
    )


def append_lives(ledger: Ledger, count: int, *, sessions: int = 4, batch: int = 100) -> int:
    """`count` whole lives spread over sessions, `batch` lives a transaction; returns how many events."""
    made = 0
    for start in range(0, count, batch):
        appends = []
        for number in range(start, min(start + batch, count)):
            identity, session = new_id(), f"s-{number % sessions}"
            appends.append(an_append_of(identity, life(identity, session), session=session))
        with ledger.write() as transaction:
            assert not transaction.append(appends)
        made += sum(len(append.events) for append in appends)
    return made


def _requested(session: str) -> ToolInvocationRequested:
    return ToolInvocationRequested(
        tool="echo",
        tool_version="1.0.0",
        contract_digest=DIGEST,
        tier="T0",
        capability_pool="pure",
        arguments={"text": "hello"},
        arguments_hash=DIGEST,
        request_digest=DIGEST,
        action_digest=DIGEST,
        tenant="default",
        client="local",
        subject="agent",
        session=session,
        stage="default",
    )


def _granted(invocation_id: str) -> ApprovalGranted:
    terms = PermitTerms(
        action_digest=DIGEST,
        invocation_id=invocation_id,
        epoch=1,
        valid_from_us=0,
        valid_until_us=2**50,
        attempts=1,
    )
    return ApprovalGranted(by="policy", permit=Permit(terms=terms, seal=SEAL), policy="p-1")


def _started() -> ToolExecutionStarted:
    return ToolExecutionStarted(
        worker="w-1",
        boot="b-1",
        nonce="n-1",
        attempt=1,
        pool="pure",
        permit_digest=DIGEST,
        start_by_ms=10_000,
        sandbox=SandboxReport(),
    )


def _completed(invocation_id: str) -> ToolExecutionCompleted:
    receipt = Receipt(
        invocation_id=invocation_id,
        tool_name="echo",
        tool_version="1.0.0",
        contract_digest=DIGEST,
        exit_code=0,
        output_summary="hello",
        structured_output={"text": "hello"},
        duration_ms=3,
        tier="T0",
        timestamp_us=1_700_000_000_000_000,
        attempt=1,
        permit_digest=DIGEST,
    )
    sealed = SealedReceipt(receipt=receipt, receipt_digest=receipt.digest, seal=SEAL)
    return ToolExecutionCompleted(nonce="n-1", sealed=sealed)
