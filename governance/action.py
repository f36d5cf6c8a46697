"""The action that a recorded request is, of which digests, permits and comparisons are made. Pure."""

from __future__ import annotations

from interlock.event import ToolInvocationRequested
from interlock.permit import Action


def action_of(requested: ToolInvocationRequested, arguments_hash: str | None = None) -> Action:
    """The action of a request, with the hash it recorded or, for what is about to run, another one."""
    return Action.of_checked(
        tenant=requested.tenant,
        client=requested.client,
        subject=requested.subject,
        session=requested.session,
        stage=requested.stage,
        route=requested.route,
        tool=requested.tool,
        contract_digest=requested.contract_digest,
        arguments_hash=requested.arguments_hash if arguments_hash is None else arguments_hash,
        pool=requested.capability_pool,
        tier=requested.tier,
        repeat=requested.repeat,
    )
