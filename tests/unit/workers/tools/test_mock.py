"""The mock executor: always the same answer, of the schema's shape where that is simple, never silent."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.tools.mock import run_mock

SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 9}},
        "required": ["a"],
    },
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3, "maxLength": 5},
            "kind": {"enum": ["one", "two", {"three": 3}]},
            "list": {"type": "array", "minItems": 2, "items": {"type": ["boolean", "null"]}},
            "fixed": {"const": [1, 2]},
            "optional": {"anyOf": [{}]},
        },
        "required": ["name", "kind", "list", "fixed"],
        "additionalProperties": False,
    },
    {"type": "object"},
]


@pytest.mark.parametrize("schema", SCHEMAS)
@given(digest=st.text())
def test_fits_a_simple_schema_and_never_changes(schema: dict[str, Any], digest: str) -> None:
    first, second = run_mock("a.tool", digest, schema), run_mock("a.tool", digest, schema)
    assert first == second
    assert first.metrics == {"mock": 1, "fits_schema": 1} or "optional" in schema.get("properties", {})
    if first.metrics["fits_schema"]:
        assert jsonschema_rs.is_valid(schema, first.output)
    assert first.sandbox.strength == "none"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x+$"}}, "required": ["a"]},
        {"type": "object", "required": ["unknown"]},
        {"allOf": [{"type": "object"}]},
    ],
)
def test_says_that_it_is_a_stand_in_where_the_schema_is_not_simple(schema: dict[str, Any]) -> None:
    outcome = run_mock("a.tool", "digest", schema)
    assert outcome.output == {"mock": True, "tool": "a.tool", "arguments_digest": "digest"}
    assert outcome.metrics == {"mock": 1, "fits_schema": 0}


def test_other_arguments_give_another_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert run_mock("t", "one", schema).output != run_mock("t", "two", schema).output
