"""The names of what a transaction holds before its first read: one spelling for everybody who writes.

Whatever spans invocations is serialised by these. On SQLite the one writer holds them all; elsewhere a name
that is left out is a race. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from governance.ledger import Head, StageKey


def of_invocation(invocation_id: str) -> str:
    """Whoever appends to this invocation."""
    return f"invocation:{invocation_id}"


def of_stage(stage: StageKey) -> str:
    """Whoever enters, leaves or moves the line of this stage."""
    return f"stage:{stage.tenant}/{stage.session}/{stage.stage}"


def of_session(tenant: str, session: str) -> str:
    """Whoever opens or closes this session, or is accepted into it."""
    return f"session:{tenant}/{session}"


def of_action(action_digest: str) -> str:
    """Whoever lets this action go ahead or denies it: twins and denials are looked for under it."""
    return f"action:{action_digest}"


def of_idempotency(tenant: str, client: str, key: str) -> str:
    """Whoever binds this idempotency key."""
    return f"key:{tenant}/{client}/{key}"


def of_line(heads: Iterable[Head]) -> set[str]:
    """Whoever moves these invocations on, and with them the lines they stand in."""
    return {name for head in heads for name in (of_invocation(head.id), of_stage(head.stage_key))}
