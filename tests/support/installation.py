"""A small but genuine installation: real keys, permits, receipts and anchors over any ledger.

What a test tampers with afterwards was right before. Nothing here is a fake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from governance.anchor import AnchorWriter
from governance.catalogue import add_tools, builtin_tools
from governance.keys import KeyPurpose
from governance.ledger import Append, Due, Head, Ledger, head_with
from governance.session import open_session
from governance.verification.fault import FaultCode
from governance.verification.record import LedgerRecords
from governance.verify import Report, verify
from interlock.adapters.ed25519 import Ed25519KeyRing, Ed25519Signer
from interlock.canonical import digest_of
from interlock.clock import Clock
from interlock.event import (
    ApprovalGranted,
    InstallationStarted,
    Stream,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    ToolInvocationRequested,
    invocation_stream,
    new_event,
)
from interlock.permit import Action, Permit, PermitTerms
from interlock.receipt import Receipt, SandboxReport, SealedReceipt
from interlock.seal import Purpose, seal_batch
from interlock.tier import SessionMode
from interlock.word import Word

ECHO = next(tool for tool in builtin_tools() if tool.name == "echo")


@dataclass
class Installation:
    """Keys and a ledger; each step of an invocation is one method."""

    ledger: Ledger
    clock: Clock
    governance: Ed25519Signer = field(default_factory=Ed25519Signer.generate)
    pool: Ed25519Signer = field(default_factory=Ed25519Signer.generate)
    anchor: Ed25519Signer = field(default_factory=Ed25519Signer.generate)

    def start(self, **changes: Any) -> None:
        """The first four events: the installation, its tool, and two sessions."""
        stream = Stream("control", "installation")
        started = InstallationStarted(
            incarnation=self.ledger.info.incarnation,
            governance_kid=self.governance.kid, governance_key=self.governance.public_hex,
            pool_kid=self.pool.kid, pool_key=self.pool.public_hex,
            anchor_kid=self.anchor.kid, anchor_key=self.anchor.public_hex,
        ).model_copy(update=changes)  # fmt: skip
        self.append(stream, started, Head(*stream, phase="started"), None)
        add_tools(self.ledger, [ECHO], added_by="operator")
        for session in ("s-1", "s-2"):
            mode = SessionMode.OBSERVE
            open_session(self.ledger, "default", session, mode, client="local", opened_by="operator")

    def request(self, invocation_id: str, **changes: Any) -> ToolInvocationRequested:
        """Accepted for decision."""
        requested = a_request(**changes)
        head = Head(
            "invocation", invocation_id, tenant=requested.tenant, session=requested.session, phase="deciding",
            client=requested.client, stage=requested.stage, tool=requested.tool,
            pool=requested.capability_pool, action_digest=requested.action_digest,
            request_digest=requested.request_digest, contract_digest=requested.contract_digest,
            priority=requested.priority, deadline_us=requested.deadline_us or 0,
            may_repeat=requested.may_repeat, external=requested.effect_scope == "external",
            batchable=requested.contract_digest == ECHO.digest,
        )  # fmt: skip
        self.append(invocation_stream(invocation_id), requested, head, "decide")
        return requested

    def permit(self, invocation_id: str, action: Action, **changes: Any) -> Permit:
        """A permit by governance's key."""
        now = self.clock.now_us()
        terms = PermitTerms(
            action_digest=action.digest, invocation_id=invocation_id, epoch=1, valid_from_us=now,
            valid_until_us=now + 60_000_000, attempts=1,
        ).model_copy(update=changes)  # fmt: skip
        [seal] = seal_batch(self.governance, Purpose.PERMIT, [terms.digest])
        return Permit(terms=terms, seal=seal)

    def grant(self, invocation_id: str, permit: Permit) -> None:
        """By policy."""
        granted = ApprovalGranted(by="policy", permit=permit, policy="p-1")
        terms = permit.terms
        columns = {"phase": "queued", "epoch": terms.epoch, "permit_until_us": terms.valid_until_us}
        self.move(invocation_id, granted, "release", ready=True, **columns)

    def claim(self, invocation_id: str, permit_digest: str, nonce: str = "n-1") -> None:
        """The first attempt begins."""
        started = ToolExecutionStarted(
            worker="w-1", boot="b-1", nonce=nonce, attempt=1, pool="pure", permit_digest=permit_digest,
            start_by_ms=10_000, sandbox=SandboxReport(),
        )  # fmt: skip
        columns = {"nonce": nonce, "boot": "b-1", "attempt": 1, "claimed_us": self.clock.now_us()}
        self.move(invocation_id, started, "lease", phase="running", ready=False, started=True, **columns)

    def sealed(self, invocation_id: str, permit_digest: str, **changes: Any) -> SealedReceipt:
        """A receipt by the pool's key."""
        receipt = Receipt(
            invocation_id=invocation_id, tool_name="echo", tool_version="1", contract_digest="c" * 64,
            exit_code=0, output_summary="said", structured_output={"said": "hello"}, duration_ms=3, tier="T0",
            timestamp_us=self.clock.now_us(), attempt=1, permit_digest=permit_digest,
        ).model_copy(update=changes)  # fmt: skip
        [seal] = seal_batch(self.pool, Purpose.RECEIPT, [receipt.digest])
        return SealedReceipt(receipt=receipt, receipt_digest=receipt.digest, seal=seal)

    def complete(self, invocation_id: str, sealed: SealedReceipt, nonce: str = "n-1") -> None:
        """The outcome."""
        completed = ToolExecutionCompleted(nonce=nonce, sealed=sealed)
        self.move(invocation_id, completed, None, phase="done", nonce="", boot="", ready=False)

    def run(self, invocation_id: str, **changes: Any) -> None:
        """One invocation from request to outcome."""
        requested = self.request(invocation_id, **changes)
        permit = self.permit(invocation_id, action_of(requested))
        self.grant(invocation_id, permit)
        self.claim(invocation_id, permit.digest)
        self.complete(invocation_id, self.sealed(invocation_id, permit.digest))

    def move(self, invocation_id: str, payload: Word, due: str | None, **columns: Any) -> None:
        """Append one event to an invocation and change its head."""
        stream = invocation_stream(invocation_id)
        with self.ledger.read() as view:
            head = view.heads([stream])[stream]
        self.append(stream, payload, head_with(head, **columns), due)

    def append(self, stream: Stream, payload: Word, head: Head, due: str | None) -> None:
        """One event in a transaction of its own."""
        falls_due = None if due is None else Due(*stream, due, 1)
        event = new_event(payload, cause="submission:s-1", actor="governor")
        with self.ledger.write() as transaction:
            lost = transaction.append([Append(stream, head.version, [event], head, falls_due)])
        assert not lost

    def anchor_head(self, *paths: Path) -> int:
        """Sign where the chain stands, into these files."""
        with self.ledger.read() as view:
            [last] = view.range(view.last_seq() - 1, 1)
        AnchorWriter(paths, self.anchor, self.ledger.info.incarnation, self.clock).anchor(last.seq, last.hash)
        return last.seq

    @property
    def public_keys(self) -> Mapping[KeyPurpose, list[tuple[str, str]]]:
        """As somebody outside keeps them."""
        return {
            KeyPurpose.GOVERNANCE: [(self.governance.kid, self.governance.public_hex)],
            KeyPurpose.POOL: [(self.pool.kid, self.pool.public_hex)],
            KeyPurpose.ANCHOR: [(self.anchor.kid, self.anchor.public_hex)],
        }

    def verify(self, records: LedgerRecords, *anchors: Path, own: Path | None = None) -> Report:
        """By the keys known outside."""
        return verify(records, anchors, self.public_keys, Ed25519KeyRing, own=own)


def a_request(**changes: Any) -> ToolInvocationRequested:
    """A request whose digests are right, whatever is changed but the digests themselves."""
    arguments = changes.pop("arguments", {"say": "hello"})
    said = {
        "tool": "echo", "tool_version": "1", "contract_digest": ECHO.digest, "tier": "T0",
        "capability_pool": "pure", "arguments": arguments, "arguments_hash": digest_of(arguments),
        "request_digest": "r" * 64, "action_digest": "", "tenant": "default", "client": "local",
        "subject": "agent", "session": "s-1", "stage": "g-1", "may_repeat": True, "timeout_ms": 1_000,
    }  # fmt: skip
    requested = ToolInvocationRequested.model_validate({**said, **changes})
    digest = changes.get("action_digest", action_of(requested).digest)
    return requested.model_copy(update={"action_digest": digest})


def action_of(requested: ToolInvocationRequested) -> Action:
    """What the request asks for."""
    return Action(
        tenant=requested.tenant, client=requested.client, subject=requested.subject,
        session=requested.session, stage=requested.stage, route=requested.route, tool=requested.tool,
        contract_digest=requested.contract_digest, arguments_hash=requested.arguments_hash,
        pool=requested.capability_pool, tier=requested.tier, repeat=requested.repeat,
    )  # fmt: skip


Named = set[tuple[int | None, FaultCode]]


def named(report: Report) -> Named:
    """Which events a report names, and for what."""
    assert report.ok == (not report.faults)
    return {(fault.seq, fault.code) for fault in report.faults}


Tamper = Callable[[], None]
