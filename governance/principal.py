"""Principals: clients, approvers, bots and operators, with public keys and rights, as the ledger knows them.

Holds no private key. Registering one is a recorded event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from governance.ledger import Append, Head, Ledger, LedgerView
from interlock.canonical import canonical, read_stored
from interlock.event import PrincipalRegistered, Stream, StreamKind, ToolInvocationRequested, new_event

LOCAL_CLIENT = "local"
LOCAL_OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who may act."""

    name: str
    role: str
    """`client`, `approver`, `bot`, `operator`."""
    person: str
    kid: str
    public_key: str
    tenant: str
    tiers: tuple[str, ...]
    tools: tuple[str, ...]
    """Names, or `*`, or `prefix.*`; empty is none."""

    def may_grant(self, tool: str, tier: str) -> bool:
        """Whether this approver's answer counts for a tool of this tier."""
        return tier in self.tiers and any(_matches(pattern, tool) for pattern in self.tools)


def _matches(pattern: str, tool: str) -> bool:
    if pattern == "*":
        return True
    return tool.startswith(pattern[:-1]) if pattern.endswith(".*") else tool == pattern


def principal_stream(name: str) -> Stream:
    """A principal's stream."""
    return Stream(StreamKind.PRINCIPAL.value, name)


def find_principals(view: LedgerView, names: Iterable[str]) -> dict[str, Principal]:
    """Name → principal, by one query; a stranger is absent."""
    heads = view.heads({principal_stream(name) for name in names})
    return {stream.id: principal_of_head(head) for stream, head in heads.items()}


def find_principal(view: LedgerView, name: str) -> Principal | None:
    """One principal, None for a stranger."""
    return find_principals(view, [name]).get(name)


def asking_persons(view: LedgerView, requested: ToolInvocationRequested) -> frozenset[str]:
    """Everybody who stands behind a request: its client, its subject, and the persons of both."""
    names = {requested.client, *([] if requested.subject is None else [requested.subject])}
    return frozenset(names | {principal.person for principal in find_principals(view, names).values()})


def is_asking(approver: Principal, asking: frozenset[str]) -> bool:
    """Whether an approver is one of `asking_persons`, by its name or its person."""
    return not {approver.name, approver.person}.isdisjoint(asking)


def is_entitled(approver: Principal, requested: ToolInvocationRequested) -> bool:
    """Whether an approver may answer for this tool and tier, in this tenant."""
    return approver.tenant == requested.tenant and approver.may_grant(requested.tool, requested.tier)


def may_answer(approver: Principal, requested: ToolInvocationRequested, asking: frozenset[str]) -> bool:
    """Whether an approver's yes to this request counts, with the rights as they were read."""
    return is_entitled(approver, requested) and not is_asking(approver, asking)


def principal_of_head(head: Head) -> Principal:
    """The principal that a head of its stream says."""
    data = read_stored(head.data.encode())
    assert isinstance(data, dict)
    return principal_of(head.id, PrincipalRegistered.model_validate(data))


def principal_of(name: str, payload: PrincipalRegistered) -> Principal:
    """The principal that was registered under a name."""
    return Principal(
        name,
        payload.role,
        payload.person,
        payload.kid,
        payload.public_key,
        payload.tenant,
        payload.tiers,
        payload.tools,
    )


def register(ledger: Ledger, name: str, payload: PrincipalRegistered, *, by: str) -> None:
    """Record a principal, or its new key and rights."""
    stream = principal_stream(name)
    with ledger.write([str(stream)], control=True) as transaction:
        before = transaction.heads([stream]).get(stream)
        data = canonical(payload.to_json()).decode()
        head = Head(stream.kind, stream.id, tenant=payload.tenant, phase="registered", data=data)
        event = new_event(payload, cause=f"operator:{by}", actor=by)
        transaction.append([Append(stream, before.version if before else 0, [event], head=head)])
        transaction.raise_epoch()
