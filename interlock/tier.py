"""How much a tool may do: tiers, capabilities, risk, session modes, pools, and the floors that tie them.

Pure tables and their look-ups; it never grants anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Tier(StrEnum):
    """What a call may touch. The values sort in order of power, so tiers compare with `<`."""

    T0 = "T0"
    """Compute; no effect, no capability."""
    T1 = "T1"
    """Read what the session may read."""
    T2 = "T2"
    """Change what can be undone, inside the workspace."""
    T3 = "T3"
    """Run programs, reach allow-listed hosts."""
    T4 = "T4"
    """What cannot be undone."""


class ToolCapability(StrEnum):
    """What the sandbox must open for a tool; an undeclared one simply does not work."""

    FILE_READ = "FILE_READ"
    FILE_WRITE = "FILE_WRITE"
    NETWORK_ACCESS = "NETWORK_ACCESS"
    SHELL_EXEC = "SHELL_EXEC"
    PROCESS_SPAWN = "PROCESS_SPAWN"


class Risk(StrEnum):
    """How bad a wrong call is, where a business system says so."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Pool(StrEnum):
    """The worker pools, one queue each."""

    PURE = "pure"
    FS = "fs"
    SHELL = "shell"
    NETWORK = "network"

    @property
    def queue(self) -> str:
        """The broker queue of this pool."""
        return f"interlock.pool.{self.value}"


class SessionMode(StrEnum):
    """How far a session may go without asking."""

    LOCKED = "locked"
    OBSERVE = "observe"
    EDIT = "edit"
    OPERATE = "operate"

    def grants(self, tier: Tier) -> bool:
        """Whether policy grants this tier by itself in this mode; T4 never is."""
        highest = _MODE_GRANTS[self]
        return highest is not None and tier <= highest

    def is_above(self, other: SessionMode) -> bool:
        """Whether this mode lets more through than the other."""
        return _MODE_ORDER.index(self) > _MODE_ORDER.index(other)


_MODE_ORDER = (SessionMode.LOCKED, SessionMode.OBSERVE, SessionMode.EDIT, SessionMode.OPERATE)

_MODE_GRANTS: Mapping[SessionMode, Tier | None] = {
    SessionMode.LOCKED: None,
    SessionMode.OBSERVE: Tier.T1,
    SessionMode.EDIT: Tier.T2,
    SessionMode.OPERATE: Tier.T3,
}

_CAPABILITY_FLOOR: Mapping[ToolCapability, Tier] = {
    ToolCapability.FILE_READ: Tier.T1,
    ToolCapability.FILE_WRITE: Tier.T2,
    ToolCapability.SHELL_EXEC: Tier.T3,
    ToolCapability.PROCESS_SPAWN: Tier.T3,
    ToolCapability.NETWORK_ACCESS: Tier.T3,
}

_RISK_FLOOR: Mapping[Risk, Tier] = {Risk.LOW: Tier.T1, Risk.MEDIUM: Tier.T2, Risk.HIGH: Tier.T4}


def floor_of(capabilities: Iterable[ToolCapability], risk: Risk | None = None) -> Tier:
    """The lowest tier a tool with these capabilities and this risk may declare."""
    floors = [_CAPABILITY_FLOOR[capability] for capability in capabilities]
    if risk is not None:
        floors.append(_RISK_FLOOR[risk])
    return max(floors, default=Tier.T0)


def pool_of(capabilities: Iterable[ToolCapability]) -> Pool:
    """The pool that runs a tool: network over shell over fs; no capability is `pure`."""
    held = set(capabilities)
    if ToolCapability.NETWORK_ACCESS in held:
        return Pool.NETWORK
    if held & {ToolCapability.SHELL_EXEC, ToolCapability.PROCESS_SPAWN}:
        return Pool.SHELL
    return Pool.FS if held else Pool.PURE
