"""A ledger of any size, every row of it genuine: real words, real seals, real appends, many lives at a time.

What a running system writes of `echo`, without the system: for proofs and measures of growth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from governance.ledger import Append, Head, LedgerTransaction
from governance.session import open_session
from interlock.canonical import digest_of
from interlock.event import (
    ApprovalGranted,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    ToolInvocationRequested,
    invocation_stream,
    new_event,
)
from interlock.identifier import new_id
from interlock.permit import Permit, PermitTerms
from interlock.receipt import Receipt, SandboxReport, SealedReceipt
from interlock.seal import Purpose, seal_batch
from interlock.tier import SessionMode
from tests.support.installation import ECHO, Installation, a_request

EVENTS_EACH = 4
"""Requested, granted, started, completed."""
LIVES_A_COMMIT = 128
SESSION_LIVES_MAX = 5_000


class _Life(NamedTuple):
    invocation_id: str
    requested: ToolInvocationRequested


def grow(
    installation: Installation,
    events: int,
    *,
    sessions: int = 200,
    told: Callable[[int], None] | None = None,
) -> int:
    """Append whole lives of `echo` until the ledger of a started installation has at least so many events.

    They are spread over so many sessions, each life in a stage of its own; more sessions are opened where one
    would hold more than 5,000. `told` hears the last number after every commit. Returns it.
    """
    ledger = installation.ledger
    with ledger.read() as view:
        seq = view.last_seq()
    names = _sessions(installation, max(sessions, (events - seq) // EVENTS_EACH // SESSION_LIVES_MAX + 1))
    number = 0
    while seq < events:
        lives = [
            _life(names[(number + place) % len(names)], number + place)
            for place in range(_some(events - seq))
        ]
        number += len(lives)
        with ledger.write() as transaction:
            assert not transaction.append(_appends(installation, transaction, lives))
        with ledger.read() as view:
            seq = view.last_seq()
        if told is not None:
            told(seq)
    return seq


def _some(missing: int) -> int:
    return min(LIVES_A_COMMIT, -(-missing // EVENTS_EACH))


def _sessions(installation: Installation, count: int) -> list[str]:
    token = new_id()[-12:]
    names = [f"grown-{token}-{number}" for number in range(count)]
    for name in names:
        mode = SessionMode.OBSERVE
        open_session(installation.ledger, "default", name, mode, client="local", opened_by="operator")
    return names


def _life(session: str, number: int) -> _Life:
    return _Life(new_id(), a_request(arguments={"value": number}, session=session, stage=f"g-{number}"))


def _appends(
    installation: Installation, transaction: LedgerTransaction, lives: Sequence[_Life]
) -> list[Append]:
    """Each life as one append, under one seal for all permits and one for all receipts."""
    now_us, epoch = transaction.now_us, transaction.epoch()
    terms = [
        PermitTerms(
            action_digest=life.requested.action_digest,
            invocation_id=life.invocation_id,
            epoch=epoch,
            valid_from_us=now_us,
            valid_until_us=now_us + 60_000_000,
            attempts=1,
        )
        for life in lives
    ]
    permits = seal_batch(installation.governance, Purpose.PERMIT, [one.digest for one in terms])
    receipts = [_receipt(life, one, now_us) for life, one in zip(lives, terms, strict=True)]
    digests = [receipt.digest for receipt in receipts]
    seals = seal_batch(installation.pool, Purpose.RECEIPT, digests)
    return [
        _append(
            life,
            Permit(terms=one, seal=permit),
            SealedReceipt(receipt=receipt, receipt_digest=digest, seal=seal),
            now_us,
        )
        for life, one, permit, receipt, digest, seal in zip(
            lives, terms, permits, receipts, digests, seals, strict=True
        )
    ]


def _receipt(life: _Life, terms: PermitTerms, now_us: int) -> Receipt:
    return Receipt(
        invocation_id=life.invocation_id,
        tool_name="echo",
        tool_version=life.requested.tool_version,
        contract_digest=ECHO.digest,
        exit_code=0,
        output_summary=digest_of(life.invocation_id),
        structured_output={"value": 1},
        duration_ms=1,
        tier="T0",
        timestamp_us=now_us,
        attempt=1,
        permit_digest=terms.digest,
    )


def _append(life: _Life, permit: Permit, sealed: SealedReceipt, now_us: int) -> Append:
    requested, nonce = life.requested, new_id()
    started = ToolExecutionStarted(
        worker="pool-pure", boot="boot-1", nonce=nonce, attempt=1, pool="pure", permit_digest=permit.digest,
        start_by_ms=10_000, sandbox=SandboxReport(), batch=LIVES_A_COMMIT,
    )  # fmt: skip
    words = {
        f"submission:{life.invocation_id}": (requested, "local"),
        "event:request": (ApprovalGranted(by="policy", permit=permit, policy="default@1"), "governor"),
        "event:grant": (started, "pool-pure"),
        "event:claim": (ToolExecutionCompleted(nonce=nonce, sealed=sealed), "pool-pure"),
    }
    events = [new_event(word, cause=cause, actor=actor) for cause, (word, actor) in words.items()]
    stream = invocation_stream(life.invocation_id)
    head = _head(life, permit, now_us)
    return Append(stream, 0, events, head, None, requested.tenant, requested.session)


def _head(life: _Life, permit: Permit, now_us: int) -> Head:
    """The head of what is done."""
    requested, terms = life.requested, permit.terms
    return Head(
        *invocation_stream(life.invocation_id), tenant=requested.tenant, session=requested.session,
        phase="done", client=requested.client, stage=requested.stage, tool=requested.tool,
        pool=requested.capability_pool, action_digest=requested.action_digest,
        request_digest=requested.request_digest, contract_digest=requested.contract_digest,
        priority=requested.priority, may_repeat=requested.may_repeat, batchable=True, epoch=terms.epoch,
        permit_until_us=terms.valid_until_us, attempt=1, claimed_us=now_us, started=True,
    )  # fmt: skip
