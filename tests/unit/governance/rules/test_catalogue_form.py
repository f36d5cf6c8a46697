"""A catalogue's file: every fault of every tool is told in words, and nobody gets a tier by silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from governance.catalogue import read_catalogue
from interlock.tier import Tier


def refused(*tools: Any, tier: Tier | None = None) -> list[tuple[str, str | None]]:
    _, reasons = read_catalogue(json.dumps(tools).encode(), "mine", tier=tier)
    assert {reason.code for reason in reasons} <= {"CATALOGUE_INVALID"}
    return [(reason.sentence, reason.pointer) for reason in reasons]


def test_a_contract_says_its_tier() -> None:
    [(sentence, pointer)] = refused({"name": "send"})
    assert sentence == "tool send: it does not say its tier: one of T0, T1, T2, T3, T4"
    assert pointer == "/0/tier"


def test_a_tier_for_those_that_say_none_leaves_the_others_theirs() -> None:
    raw = json.dumps([{"name": "a"}, {"name": "b", "tier": "T4"}]).encode()
    tools, reasons = read_catalogue(raw, "mine", tier=Tier.T0)
    assert reasons == []
    assert [tool.tier for tool in tools] == [Tier.T0, Tier.T4]


def test_every_fault_of_every_tool_is_told() -> None:
    told = refused(
        {"name": "a b", "tier": "T9", "efects": {}, "effects": {"readonly": True}, "timeout_ms": 0},
        {"tier": "T1", "description": 5},
        "no tool",
    )
    assert [pointer for _, pointer in told] == [
        "/0/name", "/0/tier", "/0/effects/readonly", "/0/timeout_ms", "/0/efects",
        "/1/name", "/1/description", "/2",
    ]  # fmt: skip
    sentences = " | ".join(sentence for sentence, _ in told)
    assert "tool a b: tier is 'T0', 'T1', 'T2', 'T3' or 'T4', not 'T9'" in sentences
    assert "there is no field effects.readonly; known are read_only, idempotent, deterministic" in sentences
    assert "tool without a name: name is missing" in sentences
    assert "description is a string, not 5" in sentences
    assert "pydantic" not in sentences
    assert "Input should" not in sentences


@pytest.mark.parametrize("raw", [b"[]", b'{"tools": []}'])
def test_a_file_without_tools_holds_none(raw: bytes) -> None:
    assert read_catalogue(raw, "mine") == ([], [])
