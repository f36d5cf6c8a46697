"""A proposal made ready to be judged: its contract, its schema faults, its digests, its sealed form.

Everything that needs no transaction is done here, before the ledger is locked. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from governance.action import action_of
from governance.ledger import Head
from governance.sensitive import Sealer, sealed_arguments
from governance.toolbox import KnownTool
from interlock.canonical import JsonObject, canonical, freeze, sha256_hex
from interlock.decision import Reason
from interlock.event import StreamKind, ToolInvocationRequested
from interlock.proposal import Proposal
from interlock.tier import Pool, Tier
from interlock.variant import Variants


@dataclass(frozen=True, slots=True)
class Draft:
    """One proposal with everything about it that no other invocation can change."""

    proposal: Proposal
    known: KnownTool | None
    faults: tuple[Reason, ...]
    requested: ToolInvocationRequested
    """What will be recorded, but for the deadline, which counts from acceptance."""
    written: bytes
    """Its canonical bytes."""


_drafts = Variants(Draft)
_INVOCATION = StreamKind.INVOCATION.value
_UNKNOWN: Mapping[str, Any] = MappingProxyType(
    {
        "tool_version": "",
        "contract_digest": "",
        "tier": Tier.T0.value,
        "capability_pool": Pool.PURE.value,
        "may_repeat": False,
        "effect_scope": "none",
        "timeout_ms": 1,
    }
)
"""What is said of the contract of a tool that nobody knows."""


def draft(proposal: Proposal, known: KnownTool | None, sealer: Sealer) -> Draft:
    """Make one proposal ready."""
    arguments = proposal.arguments
    text = None if arguments is None else canonical(arguments)
    faults = known.faults(arguments) if known is not None and arguments is not None else ()
    kept = _kept(proposal, known, faults, text, sealer)
    requested = _requested(proposal, known, kept, text)
    if text is None or kept.arguments is not arguments:
        return _drafts.made(proposal, known, faults, requested, requested.to_bytes())
    return _drafts.made(proposal, known, faults, requested, requested.to_bytes(arguments=text))


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is recorded of the arguments."""

    arguments: JsonObject | None = None
    sensitive: tuple[str, ...] = ()
    raw: JsonObject | None = None


def _requested(
    proposal: Proposal, known: KnownTool | None, kept: _Kept, text: bytes | None
) -> ToolInvocationRequested:
    said: dict[str, Any] = {
        **(_UNKNOWN if known is None else known.said),
        "tool": proposal.tool,
        "arguments": freeze(kept.arguments),
        "arguments_hash": proposal.raw_sha256 if text is None else sha256_hex(text),
        "request_digest": proposal.digest_with(text),
        "tenant": proposal.tenant,
        "client": proposal.client,
        "subject": proposal.subject,
        "session": proposal.session,
        "stage": proposal.stage,
        "route": proposal.route,
        "mode": proposal.mode,
        "key": proposal.key,
        "priority": proposal.priority,
        "repeat": proposal.repeat,
        "sensitive": kept.sensitive,
        "defaulted": proposal.defaulted,
        "raw": freeze(kept.raw),
    }
    action = action_of(ToolInvocationRequested.of_checked(**said, action_digest=""))
    return ToolInvocationRequested.of_checked(**said, action_digest=action.digest)


def _kept(
    proposal: Proposal,
    known: KnownTool | None,
    faults: tuple[Reason, ...],
    text: bytes | None,
    sealer: Sealer,
) -> _Kept:
    arguments = proposal.arguments
    if arguments is None or text is None:
        return _Kept(raw={"sha256": proposal.raw_sha256, "size_bytes": proposal.raw_size})
    # What cannot be judged is not kept; and under a misspelt key a secret stands where nothing is marked.
    if known is None or (faults and known.secrecy is not None):
        return _Kept(raw={"sha256": sha256_hex(text), "size_bytes": len(text)})
    pointers = known.sensitive(arguments)
    if not pointers:
        return _Kept(arguments)
    return _Kept(sealed_arguments(arguments, pointers, sealer, proposal.id), pointers)


def deadline_us(proposal: Proposal, now_us: int) -> int:
    """The moment after which it must not begin; 0 for none."""
    return 0 if proposal.deadline_ms is None else now_us + proposal.deadline_ms * 1_000


def first_head(ready: Draft, until_us: int, *, is_first: bool) -> Head:
    """The head of a new invocation, before anything is decided; `is_first`: nothing stands before it."""
    proposal, requested, known = ready.proposal, ready.requested, ready.known
    return Head(
        _INVOCATION,
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
        guards_twins=known is not None and known.guards_twins,
        external=requested.effect_scope == "external",
        batchable=known is not None and known.is_batchable,
    )
