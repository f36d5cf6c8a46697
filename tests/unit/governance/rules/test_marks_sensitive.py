"""A schema that marks nothing sensitive is never walked; one that marks anything, anywhere, always is."""

from __future__ import annotations

from typing import Any

import pytest

from governance.sensitive import marks_sensitive, sensitive_pointers
from interlock.canonical import freeze

MARKED: dict[str, Any] = {"type": "string", "sensitive": True}


@pytest.mark.parametrize(
    "schema",
    [
        MARKED,
        {"properties": {"key": MARKED}},
        {"properties": {"deep": {"items": {"properties": {"key": MARKED}}}}},
        {"allOf": [{"type": "object"}, {"properties": {"key": MARKED}}]},
        {"prefixItems": [{"type": "string"}, MARKED]},
        {"additionalProperties": MARKED},
        {"if": {}, "then": {"properties": {"key": MARKED}}},
        {"properties": {"key": {"$ref": "#/$defs/secret"}}, "$defs": {"secret": MARKED}},
    ],
)
def test_a_mark_is_found_wherever_it_stands(schema: Any) -> None:
    assert marks_sensitive(schema)
    assert marks_sensitive(freeze(schema))


@pytest.mark.parametrize("value", [{"key": "x"}, [{"key": "x"}], "x", {"sensitive": "x"}])
def test_without_a_mark_no_value_is_sensitive(value: Any) -> None:
    schema = {"properties": {"key": {"type": "string", "sensitive": False}, "sensitive": {"type": "string"}}}
    assert not marks_sensitive(freeze(schema))  # type: ignore[arg-type]  # plain JSON
    assert sensitive_pointers(schema, value) == ()
