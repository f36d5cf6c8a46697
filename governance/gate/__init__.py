"""The gate: an ordered list of small steps that each return a verdict. Pure; a new concern is a new step.

Deny outranks everything: the first refusal ends it; holds and deferrals are gathered to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from governance.gate.case import Case, Step
from governance.gate.steps import (
    ArgumentsAreJson,
    ArgumentsFitSchema,
    ModeOnlyLowers,
    NotDeniedBefore,
    NoUnresolvedTwin,
    SessionIsOpen,
    StillWanted,
    TierWithinMode,
    ToolIsKnown,
)
from interlock.decision import Decision, DecisionKind, Reason, Verdict

__all__ = ["Case", "Gate", "Step", "default_steps"]


def default_steps() -> tuple[Step, ...]:
    """The steps in the order they judge."""
    return (
        ArgumentsAreJson(),
        ToolIsKnown(),
        ArgumentsFitSchema(),
        StillWanted(),
        SessionIsOpen(),
        ModeOnlyLowers(),
        NotDeniedBefore(),
        NoUnresolvedTwin(),
        TierWithinMode(),
    )


class Gate:
    """Judges cases step by step and keeps every verdict."""

    def __init__(self, steps: Sequence[Step], policy: str) -> None:
        self._steps = tuple(steps)
        self._policy = policy
        # Most cases pass every step under the same epoch: their decision is one value, which nobody changes.
        self._passed: Decision | None = None

    @property
    def policy(self) -> str:
        """Name of the policy version it judges under."""
        return self._policy

    def judge(self, case: Case, epoch: int) -> Decision:
        """The decision over one case under one control epoch."""
        verdicts: list[Verdict] = []
        for step in self._steps:
            verdict = step.judge(case)
            verdicts.append(verdict)
            if verdict.outcome == "refuse":
                break
        passed = self._passed
        if passed is not None and passed.epoch == epoch and passed.verdicts == tuple(verdicts):
            return passed
        decision = self._decision(verdicts, epoch)
        if decision.kind is DecisionKind.ALLOWED:
            self._passed = decision
        return decision

    def _decision(self, verdicts: list[Verdict], epoch: int) -> Decision:
        outcomes = {verdict.outcome for verdict in verdicts}
        kind = (
            DecisionKind.REFUSED
            if "refuse" in outcomes
            else DecisionKind.DEFERRED
            if "defer" in outcomes
            else DecisionKind.HELD
            if "hold" in outcomes
            else DecisionKind.ALLOWED
        )
        reasons: tuple[Reason, ...] = tuple(
            v.reason for v in verdicts if v.reason is not None and v.outcome == _OUTCOME_OF[kind]
        )
        return Decision(
            kind=kind, reasons=reasons, verdicts=tuple(verdicts), epoch=epoch, policy=self._policy
        )


_OUTCOME_OF: Mapping[DecisionKind, str] = {
    DecisionKind.REFUSED: "refuse",
    DecisionKind.DEFERRED: "defer",
    DecisionKind.HELD: "hold",
    DecisionKind.ALLOWED: "",
}
