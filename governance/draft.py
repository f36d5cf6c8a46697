"""A proposal made ready to be judged: its contract, its schema faults, its digests, its sealed form.

Everything that needs no transaction is done here, before the ledger is locked. Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from governance.action import action_of
from governance.ledger import Head
from governance.sensitive import Sealer, sealed_arguments
from governance.toolbox import KnownTool
from interlock.canonical import JsonObject, canonical, digest_of, sha256_hex
from interlock.decision import Reason
from interlock.event import StreamKind, ToolInvocationRequested
from interlock.proposal import Proposal
from interlock.tier import Pool, Tier


@dataclass(frozen=True, slots=True)
class Draft:
    """One proposal with everything about it that no other invocation can change."""

    proposal: Proposal
    known: KnownTool | None
    faults: tuple[Reason, ...]
    requested: ToolInvocationRequested
    """What will be recorded, but for the deadline, which counts from acceptance."""


def draft(proposal: Proposal, known: KnownTool | None, sealer: Sealer) -> Draft:
    """Make one proposal ready."""
    arguments = proposal.arguments
    faults = known.faults(arguments) if known is not None and arguments is not None else ()
    kept = _kept(proposal, known, faults, sealer)
    return Draft(proposal, known, faults, _requested(proposal, known, kept))


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is recorded of the arguments."""

    arguments: JsonObject | None = None
    sensitive: tuple[str, ...] = ()
    raw: JsonObject | None = None


def _requested(proposal: Proposal, known: KnownTool | None, kept: _Kept) -> ToolInvocationRequested:
    contract = None if known is None else known.contract
    requested = ToolInvocationRequested(
        tool=proposal.tool,
        tool_version=contract.version if contract else "",
        contract_digest=known.digest if known else "",
        tier=(contract.tier if contract else Tier.T0).value,
        capability_pool=(contract.pool if contract else Pool.PURE).value,
        arguments=kept.arguments,
        arguments_hash=digest_of(proposal.arguments)
        if proposal.arguments is not None
        else proposal.raw_sha256,
        request_digest=proposal.request_digest,
        action_digest="",
        tenant=proposal.tenant,
        client=proposal.client,
        subject=proposal.subject,
        session=proposal.session,
        stage=proposal.stage,
        route=proposal.route,
        mode=proposal.mode,
        key=proposal.key,
        priority=proposal.priority,
        repeat=proposal.repeat,
        sensitive=kept.sensitive,
        defaulted=proposal.defaulted,
        may_repeat=contract.may_repeat if contract else False,
        effect_scope=contract.effect_scope.value if contract else "none",
        timeout_ms=contract.timeout_ms if contract else 1,
        raw=kept.raw,
    )
    return requested.model_copy(update={"action_digest": action_of(requested).digest})


def _kept(proposal: Proposal, known: KnownTool | None, faults: tuple[Reason, ...], sealer: Sealer) -> _Kept:
    arguments = proposal.arguments
    if arguments is None:
        return _Kept(raw={"sha256": proposal.raw_sha256, "size_bytes": proposal.raw_size})
    # What cannot be judged is not kept; and under a misspelt key a secret stands where nothing is marked.
    if known is None or (faults and known.secrecy is not None):
        text = canonical(arguments)
        return _Kept(raw={"sha256": sha256_hex(text), "size_bytes": len(text)})
    pointers = known.sensitive(arguments)
    return _Kept(sealed_arguments(arguments, pointers, sealer, proposal.id), pointers)


def deadline_us(proposal: Proposal, now_us: int) -> int:
    """The moment after which it must not begin; 0 for none."""
    return 0 if proposal.deadline_ms is None else now_us + proposal.deadline_ms * 1_000


def first_head(ready: Draft, until_us: int, *, is_first: bool) -> Head:
    """The head of a new invocation, before anything is decided; `is_first`: nothing stands before it."""
    proposal, requested = ready.proposal, ready.requested
    contract = None if ready.known is None else ready.known.contract
    return Head(
        StreamKind.INVOCATION.value,
        proposal.id,
        tenant=proposal.tenant,
        session=proposal.session,
        phase="deciding",
        client=proposal.client,
        stage=proposal.stage,
        tool=proposal.tool,
        contract_digest=requested.contract_digest,
        pool=requested.capability_pool,
        priority=proposal.priority,
        action_digest=requested.action_digest,
        request_digest=requested.request_digest,
        deadline_us=until_us,
        may_repeat=requested.may_repeat,
        ready=is_first,
        guards_twins=contract is not None and contract.guards_twins,
        external=requested.effect_scope == "external",
        batchable=contract is not None and contract.is_batchable,
    )
