"""Outside test data for schemas: JSON-Schema-Test-Suite and the Berkeley Function Calling Leaderboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.canonical import JsonObject
from interlock.schema import Valid, check_schema, compile_schema

SUITES = Path(__file__).resolve().parents[4] / "shared" / "suites"

# Refused once closed, although the schemas as they stand accept them.
REFUSED_WHEN_CLOSED = {
    ("parallel_multiple_26", "bank.calculate_balance"),
    ("live_multiple_189-83-0", "sendHttpRequest"),
    ("live_multiple_862-181-3", "Trains_1_FindTrains"),
}


def suite(name: str) -> Path:
    folder = SUITES / name
    if not folder.is_dir():
        pytest.skip(f"the outside test data is not at {folder}")
    return folder


def rows() -> Iterator[Any]:
    with (suite("bfcl") / "normalized.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def refused_calls(*, closed: bool) -> tuple[int, list[tuple[str, str]]]:
    """How many calls are accepted, and (row, tool) of each that is not; one catalogue a row."""
    accepted, refused = 0, []
    for row in rows():
        called = {call["tool"] for call in row["calls"]}
        catalogue = {
            tool["name"]: compile_schema(tool["parameters"], closed)
            for tool in row["tools"]
            if tool["name"] in called
        }
        for call in row["calls"]:
            if catalogue[call["tool"]].validate(call["arguments"]) == Valid():
                accepted += 1
            else:
                refused.append((row["id"], call["tool"]))
    return accepted, refused


def test_every_schema_of_the_leaderboard_can_be_registered() -> None:
    tools = [tool for row in rows() for tool in row["tools"]]
    assert len(tools) == 6_226
    assert [tool["name"] for tool in tools if check_schema(tool["parameters"], role="parameters")] == []


def test_calls_of_the_leaderboard_are_judged_as_documented() -> None:
    known = json.loads((suite("bfcl") / "oracle_disagreements.json").read_text(encoding="utf-8"))
    accepted_open, refused_open = refused_calls(closed=False)
    accepted, refused = refused_calls(closed=True)
    assert (accepted_open, len(refused_open)) == (3_128, 24)
    assert sorted(refused_open) == sorted((row, tool) for row, tool, _ in known)
    assert (accepted, len(refused)) == (3_125, 27)
    assert set(refused) - set(refused_open) == REFUSED_WHEN_CLOSED


Outcome = tuple[str, str, str, str]  # file, group, test, what came of it


def outcomes(pattern: str, *, closed: bool = False) -> list[Outcome]:
    """Every test of the suite against its schema, wrapped as the property `v` of an object schema."""
    folder = suite("json-schema-test-suite") / "tests" / "draft2020-12"
    found: list[Outcome] = []
    for file in sorted(folder.glob(pattern)):
        for group in json.loads(file.read_text(encoding="utf-8")):
            judge = _judge(group["schema"], closed=closed)
            for test in group["tests"]:
                outcome = judge({"v": test["data"]}, test["valid"])
                found.append((file.name, group["description"], test["description"], outcome))
    return found


def _judge(schema: Any, *, closed: bool) -> Any:
    if isinstance(schema, dict):
        # Its own references start at itself, so it stays a document of its own within the wrapper.
        schema = {"$id": "urn:example:v"} | schema
    wrapped: JsonObject = {"type": "object", "properties": {"v": schema}}
    refusals = check_schema(wrapped, role="parameters")
    if any(refusal.code != "SCHEMA_BAD" for refusal in refusals):
        return lambda value, valid: refusals[0].code
    if refusals:
        # A NUL, or an integer beyond 2^53, within the schema: no contract, but the engine can judge by it.
        assert "is not JSON" in refusals[0].message
    compiled = compile_schema(wrapped, closed)
    prefix = "not JSON, " if refusals else ""

    def judged(value: Any, valid: bool) -> str:
        fits = compiled.validate(value) == Valid()
        return prefix + ("agrees" if fits is valid else "accepted" if fits else "refused")

    return judged


def count(found: list[Outcome], *wanted: str) -> int:
    return sum(outcome in wanted for _, _, _, outcome in found)


def test_the_official_suite_is_judged_as_documented() -> None:
    found = outcomes("*.json")
    assert len(found) == 1_299
    assert count(found, "agrees", "not JSON, agrees") == 1_235
    assert count(found, "not JSON, agrees") == 8
    assert count(found, "SCHEMA_REMOTE_REF") == 44
    differing = [(file, test) for file, _, test, outcome in found if outcome in ("accepted", "refused")]
    # `format.json` holds that formats are notes only; here they are asserted.
    assert sum(file == "format.json" for file, _ in differing) == 19
    assert [test for file, test in differing if file != "format.json"] == [
        "no validation: invalid number, but it still validates"
    ]


def test_the_optional_suite_is_judged_as_documented() -> None:
    found = outcomes("optional/**/*.json")
    assert len(found) == 926
    assert count(found, "agrees", "not JSON, agrees") == 925
    assert count(found, "SCHEMA_REMOTE_REF") == 1


def test_closing_refuses_only_unlisted_keys_and_accepts_nothing_new() -> None:
    opened, closed = outcomes("*.json"), outcomes("*.json", closed=True)
    changed = [
        (file, group, test)
        for (file, group, test, before), (*_, after) in zip(opened, closed, strict=True)
        if before != after
    ]
    assert not [outcome for *_, outcome in closed if outcome == "accepted"]
    assert {(file, test) for file, _, test in changed} == CLOSED_OTHERWISE


# Each sends a key that its schema does not list, or lists only where a condition does not hold.
CLOSED_OTHERWISE = {
    ("additionalProperties.json", "additional properties are allowed"),
    ("dependentSchemas.json", "matches dependency"),
    ("dependentSchemas.json", "no dependency"),
    ("dynamicRef.json", "The recursive part doesn't need to validate against the root"),
    ("not.json", "property absent"),
    ("patternProperties.json", "Non-letter property name does not match pattern"),
    ("patternProperties.json", "non recognized members are ignored"),
    ("patternProperties.json", "regexes are case sensitive"),
    ("properties.json", "doesn't invalidate other properties"),
}
