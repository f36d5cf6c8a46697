"""The gate's steps that need no policy language, one concern each.

Each returns a verdict; none reads anything but the case.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from governance.gate.case import Case
from interlock.decision import Reason, Verdict
from interlock.tier import SessionMode

_PASSED: Mapping[str, Verdict] = MappingProxyType(
    {
        step: Verdict(step=step, outcome="pass")
        for step in ("json", "tool", "schema", "wanted", "session", "mode", "denial", "twin", "tier")
    }
)
"""Verdicts are frozen, and most of them are these."""


def _pass(step: str) -> Verdict:
    return _PASSED[step]


def _refuse(step: str, code: str, sentence: str, pointer: str | None = None) -> Verdict:
    return Verdict(step=step, outcome="refuse", reason=Reason(code=code, sentence=sentence, pointer=pointer))


def _hold(step: str, code: str, sentence: str) -> Verdict:
    return Verdict(step=step, outcome="hold", reason=Reason(code=code, sentence=sentence))


class ArgumentsAreJson:
    """Size and JSON rules, found while the proposal was read."""

    name = "json"

    def judge(self, case: Case) -> Verdict:
        fault = case.arguments_fault
        if fault is not None:
            return Verdict(step=self.name, outcome="refuse", reason=fault)
        return _pass(self.name)


class ToolIsKnown:
    """The tool exists, with the contract it was proposed under."""

    name = "tool"

    def judge(self, case: Case) -> Verdict:
        if case.contract is None:
            return _refuse(self.name, "UNKNOWN_TOOL", f"no tool is called {case.tool!r}")
        if case.contract_changed:
            return _refuse(
                self.name, "CONTRACT_CHANGED", f"the contract of {case.tool!r} changed since the proposal"
            )
        return _pass(self.name)


class ArgumentsFitSchema:
    """The arguments satisfy the tool's parameter schema."""

    name = "schema"

    def judge(self, case: Case) -> Verdict:
        if case.schema_faults:
            return Verdict(step=self.name, outcome="refuse", reason=case.schema_faults[0])
        return _pass(self.name)


class StillWanted:
    """Nobody cancelled it, and its deadline is not over."""

    name = "wanted"

    def judge(self, case: Case) -> Verdict:
        if case.cancel_requested:
            return _refuse(self.name, "CANCELLED", "it was cancelled before it began")
        if case.deadline_passed:
            return _refuse(self.name, "DEADLINE_PASSED", "its deadline was over before it began")
        return _pass(self.name)


class SessionIsOpen:
    """The session is this client's, and still takes proposals."""

    name = "session"

    def judge(self, case: Case) -> Verdict:
        if case.session_foreign:
            return _refuse(self.name, "SESSION_UNKNOWN", "this client has no such session")
        if case.session_closed:
            return _refuse(self.name, "SESSION_CLOSED", "the session is closed")
        return _pass(self.name)


class ModeOnlyLowers:
    """A proposal may name a lower mode than its session's, never a higher."""

    name = "mode"

    def judge(self, case: Case) -> Verdict:
        if case.asked_mode is None:
            return _pass(self.name)
        try:
            asked = SessionMode(case.asked_mode)
        except ValueError:
            return _refuse(self.name, "FIELD_INVALID", f"{case.asked_mode!r} is no session mode", "/mode")
        if asked.is_above(case.mode):
            sentence = f"the session's mode is {case.mode.value}; a proposal cannot raise it to {asked.value}"
            return _refuse(self.name, "MODE_ESCALATION", sentence)
        return _pass(self.name)


class NotDeniedBefore:
    """A denial is final for the action it was given on."""

    name = "denial"

    def judge(self, case: Case) -> Verdict:
        if case.denied_by is not None:
            return _refuse(self.name, "DENIED_BEFORE", f"the same action was denied as {case.denied_by}")
        return _pass(self.name)


class NoUnresolvedTwin:
    """While the same external action runs or is unresolved, another one waits for a person."""

    name = "twin"

    def judge(self, case: Case) -> Verdict:
        if case.twin is not None and not case.approved:
            return _hold(self.name, "UNRESOLVED_TWIN", f"the same action is not resolved yet: {case.twin}")
        return _pass(self.name)


class TierWithinMode:
    """What the mode does not grant by itself needs an approval."""

    name = "tier"

    def judge(self, case: Case) -> Verdict:
        if case.contract is None or case.approved:
            return _pass(self.name)
        mode = case.mode if case.asked_mode is None else SessionMode(case.asked_mode)
        if mode.grants(case.contract.tier):
            return _pass(self.name)
        sentence = f"{case.contract.tier.value} needs an approval in mode {mode.value}"
        return _hold(self.name, "TIER_ABOVE_MODE", sentence)
