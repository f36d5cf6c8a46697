"""The words of a decision: what each gate step said, and what follows from all of them.

Values only; the judging is done in `governance`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from interlock.word import Word


class Reason(Word):
    """Why: a stable code and one human sentence."""

    code: str
    sentence: str
    pointer: str | None = None
    """JSON Pointer into the arguments, where the reason is about one place."""


class Verdict(Word):
    """What one step of the gate said."""

    step: str
    outcome: Literal["pass", "hold", "defer", "refuse"]
    reason: Reason | None = None


class DecisionKind(StrEnum):
    """The four ways a judgement ends."""

    ALLOWED = "allowed"
    HELD = "held"
    DEFERRED = "deferred"
    REFUSED = "refused"


class Decision(Word):
    """The gate's judgement over one invocation, with every step's verdict."""

    kind: DecisionKind
    reasons: tuple[Reason, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    until_us: int | None = None
    """For a deferral: judge again at this moment at the latest."""
    epoch: int = 0
    """The control epoch it was made under."""
    policy: str = ""
    """The digest-named policy version it was made under."""
