"""The port between a supervisor and a built-in tool: what to launch, and how to read what came back.

A plan decides how its own tool ends. It starts nothing and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from workers.supervisor.launch import OwnFunction, Program
from workers.supervisor.port import AffectedEntity
from workers.supervisor.watch import Ran


@dataclass(frozen=True, slots=True)
class Answer:
    """The tool's own end: its structured output and what it changed."""

    exit_code: int
    output: dict[str, Any]
    affected: tuple[AffectedEntity, ...] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
    truncated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer. `began` is False only when no effect can have begun."""

    code: str
    message: str
    began: bool = False


class Plan(Protocol):
    """One call, ready to launch."""

    @property
    def launch(self) -> Program | OwnFunction:
        """What to start."""
        ...

    @property
    def wall_limit_ms(self) -> int:
        """How long it may take: never more than the call allows."""
        ...

    def conclude(self, ran: Ran) -> Answer | Refusal:
        """Reads the end of a child that came to its own end."""
        ...

    def affected(self) -> tuple[AffectedEntity, ...]:
        """What was changed, asked after the child ended without an answer."""
        ...
