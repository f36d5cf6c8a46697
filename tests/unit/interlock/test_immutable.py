"""Words cannot be changed, however deep: a test tries every nested value of every word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from interlock.approval import ApprovalSnapshot, Vote
from interlock.contract import Tool
from interlock.decision import Decision, DecisionKind, Reason, Verdict
from interlock.event import EVENT_TYPES, ToolInvocationRequested
from interlock.permit import Action, Permit, PermitTerms
from interlock.receipt import (
    AffectedEntity,
    Expectation,
    Failure,
    Receipt,
    SealedReceipt,
    Success,
    ToolResultArtifact,
)
from interlock.request import ToolRequest
from interlock.seal import Seal
from interlock.word import Word

NESTED: dict[str, Any] = {"a": [1, {"b": [True, None, "x"]}], "c": {"d": {"e": [[]]}}}

TERMS = PermitTerms(
    action_digest="0" * 64, invocation_id="i", epoch=1, valid_from_us=1, valid_until_us=2, attempts=1
)
SEAL = Seal(kid="k", root="0" * 64, path=("l" + "0" * 64,), signature="00")
RECEIPT = Receipt(
    invocation_id="i",
    tool_name="t",
    tool_version="1",
    contract_digest="0" * 64,
    exit_code=0,
    output_summary="",
    structured_output=NESTED,
    affected_entities=(AffectedEntity(name="f"),),
    duration_ms=1,
    tier="T0",
    timestamp_us=1,
    metrics={"n": 1},
    attempt=1,
    permit_digest="0" * 64,
    resources={"cpu": [1]},
    truncated=("stdout",),
)
REASON = Reason(code="CANCELLED", sentence="s")
REQUESTED = ToolInvocationRequested(
    tool="t",
    tool_version="1",
    contract_digest="0" * 64,
    tier="T0",
    capability_pool="pure",
    arguments=NESTED,
    arguments_hash="0" * 64,
    request_digest="0" * 64,
    action_digest="0" * 64,
    tenant="default",
    client="local",
    subject=None,
    session="s",
    stage="g",
    raw=NESTED,
)

WORDS: tuple[Word, ...] = (
    Tool(name="t", parameters=NESTED, output=NESTED),
    ToolRequest(tool="t", arguments=NESTED),
    Decision(
        kind=DecisionKind.HELD,
        reasons=(REASON,),
        verdicts=(Verdict(step="s", outcome="hold", reason=REASON),),
    ),
    Permit(terms=TERMS, seal=SEAL),
    SealedReceipt(receipt=RECEIPT, receipt_digest=RECEIPT.digest, seal=SEAL),
    Success(invocation_id="i", output=NESTED, exit_code=0, metadata=NESTED),
    Failure(invocation_id="i", reason="CANCELLED", recoverable=False),
    ToolResultArtifact(
        receipt=RECEIPT, expectations=(Expectation(pointer="/a", equals=NESTED),), differences=[NESTED]
    ),
    Vote(invocation_id="i", approver="a", decision="approve", decision_id="d", terms_digest=TERMS.digest),
    ApprovalSnapshot(
        invocation_id="i",
        tool="t",
        tool_version="1",
        contract_digest="0" * 64,
        tier="T0",
        arguments=NESTED,
        arguments_hash="0" * 64,
        tenant="default",
        client="local",
        subject=None,
        session="s",
        stage="g",
        route=None,
        terms=TERMS,
        reasons=[NESTED],
    ),
    REQUESTED,
)


def places(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value inside a word that could hold others, with its path."""
    yield path, value
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from places(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from places(item, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for position, item in enumerate(value):
            yield from places(item, f"{path}[{position}]")


def refuses_change(value: Any) -> bool:
    """Whether trying to change this one value in place fails."""
    if isinstance(value, BaseModel):
        return all(_refuses_attribute(value, name) for name in type(value).model_fields)
    if isinstance(value, Mapping):
        return not hasattr(value, "__setitem__") and not hasattr(value, "update")
    return value is None or isinstance(value, (str, int, float, bool, bytes, tuple, Enum))


def _refuses_attribute(word: BaseModel, name: str) -> bool:
    try:
        setattr(word, name, None)
    except ValidationError:
        return True
    return False


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(word).__name__)
def test_no_nested_value_of_a_word_can_be_changed(word: Word) -> None:
    changeable = [path for path, value in places(word) if not refuses_change(value)]
    assert changeable == []


def test_what_a_word_was_made_from_may_change_without_changing_it() -> None:
    given = {"argv": ["ls", "-la"]}
    request = ToolRequest(tool="shell.run", arguments=given)
    before = request.arguments_hash
    given["argv"].append("/")
    assert request.arguments_hash == before


def test_what_a_word_writes_may_change_without_changing_it() -> None:
    before = REQUESTED.digest
    written: Any = REQUESTED.to_json()
    written["arguments"]["a"].append("more")
    assert REQUESTED.digest == before


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_payload_is_a_frozen_word(name: str) -> None:
    payload = EVENT_TYPES[name].payload
    assert payload.model_config.get("frozen") is True
    assert payload.model_config.get("extra") == "forbid"


def test_an_action_differs_in_every_field_it_binds() -> None:
    action = Action(
        tenant="t",
        client="c",
        subject="s",
        session="e",
        stage="g",
        route="r",
        tool="o",
        contract_digest="d",
        arguments_hash="h",
        pool="p",
        tier="T0",
    )
    changed = [
        action.model_copy(update={name: 7 if name == "repeat" else "other"}) for name in Action.model_fields
    ]
    assert len({action.digest, *(other.digest for other in changed)}) == len(changed) + 1
