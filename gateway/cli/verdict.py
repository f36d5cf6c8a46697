"""Exit codes: what the end of `submit` means to a script. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Every command needs the exit codes, few need the words behind them, which are slow to import.
    from interlock.answer import Answer
    from interlock.state import ToolInvocationRecord


class Exit(IntEnum):
    """What a command's exit code says."""

    OK = 0
    """Completed; without --wait: accepted."""
    ERROR = 1
    """The command could not be carried out, or what it looked for does not hold."""
    USAGE = 2
    PARKED = 3
    """Waits for an approval."""
    REJECTED = 4
    """Refused, denied, expired or cancelled: never ran, and never will."""
    FAILED = 5
    """Did not run to its end; with --check also a program that ended with another code than 0."""
    RECONCILIATION = 6
    """The outcome is unknown and has to be found out."""
    CLOSED_PIPE = 141
    """Nobody read the output any more."""


_BY_STATUS: Mapping[str, Exit] = MappingProxyType(
    {
        "COMPLETED": Exit.OK,
        "FAILED": Exit.FAILED,
        "REJECTED": Exit.REJECTED,
    }
)
_BY_PHASE: Mapping[str, Exit] = MappingProxyType(
    {
        "awaiting_approval": Exit.PARKED,
        "reconciliation_required": Exit.RECONCILIATION,
    }
)


def exit_of_record(record: ToolInvocationRecord, *, check: bool) -> Exit:
    """What stands in a record: its end, or where it rests; OK while it is on its way."""
    if check and record.status == "COMPLETED" and record.exit_code not in (None, 0):
        return Exit.FAILED
    by_phase = _BY_PHASE.get(record.phase, Exit.OK)
    return _BY_STATUS.get(record.status, by_phase)


def exit_of_answer(answer: Answer) -> Exit:
    """What the answer to a proposal says by itself, before anything ran."""
    if answer.status == "refused":
        return Exit.REJECTED
    return _BY_PHASE.get(answer.phase, Exit.OK)
