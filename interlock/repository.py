"""Reading what became of invocations: the repository over a projection.

Read only; never used to decide.
"""

from __future__ import annotations

from typing import Protocol

from interlock.projection import Projection
from interlock.state import SessionName, ToolInvocationRecord, ToolState
from interlock.workspace import DEFAULT_TENANT


class ToolRepository(Protocol):
    """Folded records and states, by id and session."""

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """One invocation's record."""
        ...

    def state(self, session: str, tenant: str = DEFAULT_TENANT) -> ToolState:
        """All records of a session; empty for a session nobody used."""
        ...

    def sessions(self) -> tuple[SessionName, ...]:
        """Every session with a record, sorted."""
        ...


class DefaultToolRepository:
    """A repository over the stored projection."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        return self._projection.records([invocation_id]).get(invocation_id)

    def state(self, session: str, tenant: str = DEFAULT_TENANT) -> ToolState:
        return self._projection.state(session, tenant)

    def sessions(self) -> tuple[SessionName, ...]:
        return tuple(sorted(self._projection.sessions()))
