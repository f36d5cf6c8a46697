"""Invocations that were asked for and granted, as governance writes them: what a pool's tests begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from governance.ledger import Append, Due, Head, Ledger, head_with
from interlock.canonical import JsonObject
from interlock.contract import Tool
from interlock.event import (
    ApprovalGranted,
    CancellationRequested,
    ToolInvocationRequested,
    invocation_stream,
    new_event,
)
from interlock.identifier import new_id
from interlock.permit import Action, Permit, PermitTerms
from interlock.request import ToolRequest
from interlock.seal import Purpose, Signer, seal_batch


@dataclass(frozen=True)
class Asked:
    """What a test wants to be allowed; every field may be changed."""

    contract: Tool
    arguments: Mapping[str, Any]
    session: str = "s"
    stage: str = "default"
    subject: str | None = "agent"
    client: str = "local"
    tenant: str = "default"
    sensitive: tuple[str, ...] = ()
    stored: Mapping[str, Any] | None = None
    """The arguments as they are stored, where they differ from the true ones."""
    deadline_us: int = 0
    epoch: int | None = None
    valid_us: tuple[int, int] = (-60_000_000, 600_000_000)
    """From and until, about the ledger's now."""
    cancel: bool = False
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the head as somebody who can write the ledger made them."""

    def action(self) -> Action:
        request = ToolRequest(tool=self.contract.qualified_name, arguments=dict(self.arguments))
        return Action(
            tenant=self.tenant,
            client=self.client,
            subject=self.subject,
            session=self.session,
            stage=self.stage,
            route=None,
            tool=self.contract.qualified_name,
            contract_digest=self.contract.digest,
            arguments_hash=request.arguments_hash,
            pool=self.contract.pool.value,
            tier=self.contract.tier.value,
        )

    def requested(self) -> ToolInvocationRequested:
        action = self.action()
        stored = self.arguments if self.stored is None else self.stored
        return ToolInvocationRequested(
            tool=action.tool,
            tool_version=self.contract.version,
            contract_digest=action.contract_digest,
            tier=action.tier,
            capability_pool=action.pool,
            arguments=dict(stored),
            arguments_hash=action.arguments_hash,
            request_digest=action.digest,
            action_digest=action.digest,
            tenant=action.tenant,
            client=action.client,
            subject=action.subject,
            session=action.session,
            stage=action.stage,
            sensitive=self.sensitive,
            may_repeat=self.contract.may_repeat,
            effect_scope=self.contract.effect_scope.value,
            timeout_ms=self.contract.timeout_ms,
            deadline_us=self.deadline_us or None,
        )


def put_contracts(ledger: Ledger, contracts: Sequence[Tool]) -> None:
    """Keep these contracts in the ledger."""
    with ledger.write(control=True) as transaction:
        for contract in contracts:
            transaction.put_contract(contract.digest, contract.to_bytes())


def grant(
    ledger: Ledger, signer: Signer, asked: Sequence[Asked], *, changed: JsonObject | None = None
) -> list[str]:
    """Append request and permit of each, queued and ready; their ids. `changed` overwrites fields of the
    stored request after the permit was made, as somebody who can write the ledger would."""
    ids = [new_id() for _ in asked]
    with ledger.write() as transaction:
        now_us, epoch = transaction.now_us, transaction.epoch()
        terms = [
            PermitTerms(
                action_digest=item.action().digest,
                invocation_id=identifier,
                epoch=epoch if item.epoch is None else item.epoch,
                valid_from_us=now_us + item.valid_us[0],
                valid_until_us=now_us + item.valid_us[1],
                attempts=item.contract.attempts_max,
            )
            for item, identifier in zip(asked, ids, strict=True)
        ]
        seals = seal_batch(signer, Purpose.PERMIT, [one.digest for one in terms])
        permits = [Permit(terms=one, seal=seal) for one, seal in zip(terms, seals, strict=True)]
        lost = transaction.append(
            [
                append_granted(now_us, identifier, item, permit, changed)
                for identifier, item, permit in zip(ids, asked, permits, strict=True)
            ]
        )
        assert not lost
    return ids


def append_granted(
    now_us: int, identifier: str, item: Asked, permit: Permit, changed: JsonObject | None = None
) -> Append:
    """The append of one invocation's request and grant."""
    stream = invocation_stream(identifier)
    requested = item.requested()
    if changed is not None:
        requested = ToolInvocationRequested.model_validate({**requested.to_json(), **changed})
    granted = ApprovalGranted(by="policy", permit=permit, policy="test")
    events = [
        new_event(requested, cause=f"submission:{identifier}", actor=item.client),
        new_event(granted, cause="submission:x", actor="governor"),
    ]
    return Append(
        stream,
        0,
        events,
        head_of(identifier, item, permit),
        Due(stream.kind, identifier, "release", now_us + 5_000_000),
        item.tenant,
        item.session,
    )


def head_of(identifier: str, item: Asked, permit: Permit) -> Head:
    """The head of a granted invocation whose stage is free."""
    contract, action = item.contract, item.action()
    head = Head(
        kind="invocation",
        id=identifier,
        tenant=item.tenant,
        session=item.session,
        phase="queued",
        client=item.client,
        stage=item.stage,
        tool=action.tool,
        contract_digest=action.contract_digest,
        pool=action.pool,
        ready=True,
        action_digest=action.digest,
        request_digest=action.digest,
        permit_until_us=permit.terms.valid_until_us,
        epoch=permit.terms.epoch,
        deadline_us=item.deadline_us,
        may_repeat=contract.may_repeat,
        guards_twins=contract.guards_twins,
        external=contract.effect_scope.value == "external",
        batchable=contract.is_batchable,
        cancel=item.cancel,
    )
    return head_with(head, **item.columns)


def types_of(ledger: Ledger, identifier: str, kind: str = "invocation") -> list[str]:
    """The types of an invocation's events, in order."""
    return [event.type for event in events_of(ledger, identifier, kind)]


def events_of(ledger: Ledger, identifier: str, kind: str = "invocation") -> list[Any]:
    """An invocation's events, in order."""
    stream = invocation_stream(identifier)._replace(kind=kind)
    with ledger.read() as view:
        return view.events([stream]).get(stream, [])


def phase_of(ledger: Ledger, identifier: str) -> str:
    """What an invocation waits for."""
    stream = invocation_stream(identifier)
    with ledger.read() as view:
        return view.heads([stream])[stream].phase


def body_of(ledger: Ledger, identifier: str, type_: str, kind: str = "invocation") -> dict[str, Any]:
    """The payload of the last event of this type."""
    body: dict[str, Any] = [e for e in events_of(ledger, identifier, kind) if e.type == type_][-1].body()
    return body


def the_head(ledger: Ledger, identifier: str) -> Head:
    """An invocation's head."""
    stream = invocation_stream(identifier)
    with ledger.read() as view:
        return view.heads([stream])[stream]


def due_of(ledger: Ledger, identifier: str) -> str | None:
    """What falls due for an invocation."""
    stream = invocation_stream(identifier)
    with ledger.read() as view:
        due = view.due_of([stream]).get(stream)
    return None if due is None else due.what


def cancel(ledger: Ledger, identifier: str, **columns: Any) -> None:
    """Ask for the end of an invocation, as governance does; `columns` of its head are set as well."""
    stream = invocation_stream(identifier)
    event = new_event(CancellationRequested(by="operator"), cause="x", actor="operator")
    with ledger.write() as transaction:
        head, due = transaction.heads([stream])[stream], transaction.due_of([stream])[stream]
        after = head_with(head, **{"cancel": True, **columns})
        assert not transaction.append(
            [Append(stream, head.version, [event], after, due, head.tenant, head.session)]
        )
