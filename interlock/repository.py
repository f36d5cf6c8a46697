"""Reading what became of invocations: the repository over a projection.

Read only; never used to decide.
"""

from __future__ import annotations

from typing import Protocol

from interlock.projection import Projection
from interlock.state import ToolInvocationRecord, ToolState


class ToolRepository(Protocol):
    """Folded records and states, by id and session."""

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """One invocation's record."""
        ...

    def state(self, session: str) -> ToolState:
        """All records of a session; empty for a session nobody used."""
        ...

    def sessions(self) -> tuple[str, ...]:
        """Every session with a record, sorted."""
        ...


class DefaultToolRepository:
    """A repository over the stored projection."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        return self._projection.records([invocation_id]).get(invocation_id)

    def state(self, session: str) -> ToolState:
        return self._projection.state(session)

    def sessions(self) -> tuple[str, ...]:
        return tuple(sorted(self._projection.sessions()))
