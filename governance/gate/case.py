"""What the gate judges: one proposal with every fact the steps need, gathered beforehand.

Facts only; no step reads a clock or a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from interlock.canonical import JsonObject
from interlock.contract import Tool
from interlock.decision import Reason, Verdict
from interlock.tier import SessionMode


@dataclass(frozen=True, slots=True)
class Case:
    """One proposal before the gate."""

    tool: str
    """As the proposal named it."""
    contract: Tool | None
    """None for a tool nobody knows."""
    arguments: JsonObject | None
    arguments_fault: Reason | None
    """Why the arguments were no acceptable JSON object."""
    schema_faults: tuple[Reason, ...]
    """What the parameter schema has against the arguments."""
    mode: SessionMode
    """The session's mode."""
    asked_mode: str | None
    """A mode the proposal named for itself."""
    session_closed: bool
    session_foreign: bool
    """Whether the session belongs to another client."""
    twin: str | None
    """An unresolved invocation of the same action."""
    denied_by: str | None
    """An invocation whose denial is final for this action."""
    deadline_passed: bool
    cancel_requested: bool = False
    approved: bool = False
    """Whether a quorum has answered for exactly this invocation."""
    contract_changed: bool = False
    """Whether the tool's contract is another one than when it was proposed."""


class Step(Protocol):
    """One concern of the gate."""

    @property
    def name(self) -> str:
        """Its name in decision records."""
        ...

    def judge(self, case: Case) -> Verdict:
        """Pass, hold, defer or refuse; never raises for an input."""
        ...
