"""The supervisor's port: one call in, exactly one outcome out. Plain frozen values, no I/O.

An outcome says what is known: it completed, it failed (and whether its effect may have begun), or
nothing ran at all. It never guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

FILE_READ = "FILE_READ"
FILE_WRITE = "FILE_WRITE"
NETWORK_ACCESS = "NETWORK_ACCESS"
SHELL_EXEC = "SHELL_EXEC"
PROCESS_SPAWN = "PROCESS_SPAWN"


@dataclass(frozen=True, slots=True)
class Call:
    """One execution to carry out, already claimed by the caller.

    `start_by_boottime_ns` is a moment of CLOCK_BOOTTIME; the effect never begins after it.
    `claim` is the caller's own word (its claim nonce); it is repeated in an orphaned outcome.
    """

    invocation_id: str
    tool: str
    arguments: Mapping[str, Any]
    session_id: str
    workspace: Path | None
    capabilities: frozenset[str]
    wall_limit_ms: int
    output_limit_bytes: int
    start_by_boottime_ns: int
    claim: str = ""


@dataclass(frozen=True, slots=True)
class AffectedEntity:
    """Something the execution changed; a digest is `sha256:<hex>`, None where nothing was or is.

    A change whose content was not read, being over the bound, has the digest `unread`.
    """

    kind: str
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """How strongly the execution was held: `N` (namespaces) or `none`, and by which layers."""

    strength: str
    layers: tuple[str, ...] = ()


UNSANDBOXED = SandboxReport("none")


@dataclass(frozen=True, slots=True)
class Completed:
    """The tool ran to its own end. `output` is JSON with integers only; `metrics` are named integers."""

    exit_code: int
    output: dict[str, Any]
    affected: tuple[AffectedEntity, ...] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
    duration_ms: int = 0
    sandbox: SandboxReport = UNSANDBOXED
    truncated: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """The tool did not come to its own end, or its answer cannot be used.

    `began` is False only when it is certain that no effect has begun. `raw_output` is bounded evidence.
    """

    code: str
    message: str
    began: bool
    affected: tuple[AffectedEntity, ...] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
    duration_ms: int = 0
    sandbox: SandboxReport = UNSANDBOXED
    truncated: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)
    raw_output: bytes = b""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Nothing ran: the claim may be released and the invocation started again."""

    code: str
    message: str


Outcome: TypeAlias = Completed | Failed | NotStarted
ShouldStop: TypeAlias = Callable[[], str | None]
BeforeEffect: TypeAlias = Callable[[], bool]


class Supervisor(Protocol):
    """Carries out one call. Safe to use from several threads at once."""

    def execute(
        self, call: Call, should_stop: ShouldStop, before_effect: BeforeEffect | None = None
    ) -> Outcome:
        """Returns the one outcome of `call`.

        `should_stop` is asked at least every 250 ms; a reason ends the whole process tree.
        `before_effect` is asked once, just before the effect; False means that nothing runs.
        What either of them raises ends the tree and is raised on.
        """
        ...


class InMemorySupervisor:
    """A supervisor without processes: answers every call with `answer(call)`, after the same questions."""

    def __init__(self, answer: Callable[[Call], Outcome]) -> None:
        self._answer = answer
        self.calls: list[Call] = []

    def execute(
        self, call: Call, should_stop: ShouldStop, before_effect: BeforeEffect | None = None
    ) -> Outcome:
        """The outcome that `answer` gives, unless a question forbids the start."""
        reason = should_stop()
        if reason is not None:
            return NotStarted("CANCELLED_BEFORE_START", reason)
        if before_effect is not None and not before_effect():
            return NotStarted("CLAIM_NOT_HELD", "the claim did not stand just before the effect")
        self.calls.append(call)
        return self._answer(call)
