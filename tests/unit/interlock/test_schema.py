"""Schemas at registration and values at the gate: what is refused, where, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.canonical import Json, JsonObject, freeze, parse_json
from interlock.code import CODES
from interlock.errors import SchemaError
from interlock.schema import (
    Invalid,
    SchemaFault,
    Valid,
    check_schema,
    compile_schema,
    self_check,
    unknown_formats,
)


def of(**properties: Json) -> JsonObject:
    return {"type": "object", "properties": properties}


def codes(schema: Any, role: Any = "parameters") -> list[tuple[str, str]]:
    found = check_schema(schema, role=role)
    assert all(refusal.code in CODES for refusal in found)
    return [(refusal.code, refusal.pointer) for refusal in found]


def faults(schema: JsonObject, value: Json, *, closed: bool = True) -> tuple[SchemaFault, ...]:
    answer = compile_schema(schema, closed).validate(value)
    return answer.errors if isinstance(answer, Invalid) else ()


TICKET = of(ticket_id={"type": "integer", "minimum": 1}, body={"type": "string"}) | {
    "required": ["ticket_id", "body"]
}
REFUND: JsonObject = of(
    order_id={"type": "string"},
    amount={"type": "number", "exclusiveMinimum": 0, "maximum": 100_000},
    dry_run={"type": "boolean", "default": False},
)


# --- numbers, formats, patterns ------------------------------------------------------------------


@pytest.mark.parametrize("text", ["60", "60.0", "6e1"])
def test_whole_numbers_are_integers_however_they_are_written(text: str) -> None:
    assert faults(TICKET, parse_json(f'{{"ticket_id":{text},"body":"x"}}')) == ()


@pytest.mark.parametrize("text", ["60.5", "true", '"60"'])
def test_what_is_no_integer_is_refused_at_its_place(text: str) -> None:
    found = faults(TICKET, parse_json(f'{{"ticket_id":{text},"body":"x"}}'))
    assert [(fault.pointer, fault.keyword) for fault in found] == [("/ticket_id", "type")]


def test_minus_zero_is_not_above_zero() -> None:
    assert [fault.pointer for fault in faults(REFUND, parse_json('{"amount":-0.0}'))] == ["/amount"]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("tomorrow", False),
        ("2026-03-08T02:30:00", False),
        ("2026-02-30T00:00:00Z", False),
        ("2026-01-01t00:00:00z", True),
        ("2026-12-31T23:59:60Z", True),
        ("2026-12-31T22:59:60Z", False),
    ],
)
def test_dates_are_those_of_rfc_3339(text: str, fits: bool) -> None:
    assert (faults(of(due={"type": "string", "format": "date-time"}), {"due": text}) == ()) is fits


def test_formats_are_asserted_here() -> None:
    assert self_check() == []


def test_a_build_that_does_not_assert_formats_fails_its_own_check() -> None:
    class LenientCompiled:
        def is_valid(self, value: Any) -> bool:
            return True

        def faults(self, value: Any) -> Any:
            return iter(())

    class LenientEngine:
        def compile(self, schema: dict[str, Any]) -> LenientCompiled:
            return LenientCompiled()

        def is_pattern(self, pattern: str) -> bool:
            return True

    found = self_check(LenientEngine())
    assert "format date-time is not asserted: it accepts tomorrow" in found
    assert "a reference to a file was followed" in found


def test_formats_that_are_not_asserted_are_listed() -> None:
    schema = of(a={"format": "credit-card"}, b={"format": "date"}, c={"items": {"format": "int32"}})
    assert check_schema(schema, role="parameters") == []
    assert unknown_formats(schema) == (
        ("/properties/a/format", "credit-card"),
        ("/properties/c/items/format", "int32"),
    )


def test_patterns_that_cannot_run_in_linear_time_are_refused_by_name() -> None:
    schema = of(
        a={"pattern": "["},
        b={"pattern": "(?=x)y"},
        c={"patternProperties": {"(a)\\1": True}},
        d={"pattern": "^\\p{L}+$"},
        e={"pattern": "^(a+)+$"},
        f={"pattern": "^a{1,1000}{1,1000}{1,1000}$"},
    )
    assert sorted(codes(schema)) == [
        ("SCHEMA_PATTERN", "/properties/a/pattern"),
        ("SCHEMA_PATTERN", "/properties/b/pattern"),
        ("SCHEMA_PATTERN", "/properties/c/patternProperties/(a)\\1"),
        ("SCHEMA_PATTERN", "/properties/f/pattern"),
    ]


def test_patterns_mean_what_they_mean_in_ecma_script() -> None:
    letters: Json = {"pattern": "^\\p{L}+$"}
    digit: Json = {"pattern": "^\\d$"}
    assert faults(of(v=letters), {"v": "Zürich"}) == ()
    assert faults(of(v=digit), {"v": "\u0663"}) != ()
    assert faults(of(v=digit), {"v": "3\n"}) != ()
    assert faults(of(v={"pattern": "^(a+)+$"}), {"v": "a" * 50_000 + "!"}) != ()


def test_a_string_that_looks_like_json_is_a_string() -> None:
    schema = of(fields=of(a={"type": "integer"}))
    assert [fault.pointer for fault in faults(schema, {"fields": '{"a":1}'})] == ["/fields"]
    assert faults(of(fields={"type": "string"}), {"fields": '{"a":1}'}) == ()


# --- registration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "code", "pointer"),
    [
        ({}, "SCHEMA_NOT_OBJECT", ""),
        ({"type": ["object", "null"]}, "SCHEMA_NOT_OBJECT", ""),
        ({"type": "objekt", "properties": {}}, "SCHEMA_NOT_OBJECT", ""),
        (of(v={"type": "objekt"}), "SCHEMA_BAD", "/properties/v/type"),
        (of(v={"exclusiveMinimum": True}), "SCHEMA_BAD", "/properties/v/exclusiveMinimum"),
        (of(v={"$ref": "#/$defs/none"}), "SCHEMA_BAD", "/properties/v/$ref"),
        (of(v={"$ref": "#none"}), "SCHEMA_BAD", "/properties/v/$ref"),
        (of(v={"$ref": "http://127.0.0.1/x"}), "SCHEMA_REMOTE_REF", "/properties/v/$ref"),
        (of(v={"$ref": "file:///etc/passwd"}), "SCHEMA_REMOTE_REF", "/properties/v/$ref"),
        (of(v={"$ref": "other.json#/a"}), "SCHEMA_REMOTE_REF", "/properties/v/$ref"),
        (of(v={"$dynamicRef": "http://127.0.0.1/x#a"}), "SCHEMA_REMOTE_REF", "/properties/v/$dynamicRef"),
        ({"type": "object", "$ref": "#"}, "SCHEMA_SELF_REFERENCE", ""),
        ({"type": "object", "not": {"$ref": "#"}}, "SCHEMA_SELF_REFERENCE", "/not"),
        (
            of(v={"$ref": "#/$defs/loop"}) | {"$defs": {"loop": {"$ref": "#/$defs/loop"}}},
            "SCHEMA_SELF_REFERENCE",
            "/$defs/loop",
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
            "SCHEMA_DIALECT",
            "/$schema",
        ),
        (of(v={"enum": ["a" * 300_000]}), "SCHEMA_UNBOUNDED", ""),
        (of(v={"const": 2**53}), "SCHEMA_BAD", ""),
        (of(v={"$ref": "//["}) | {"$id": "http://h/"}, "SCHEMA_REMOTE_REF", "/properties/v/$ref"),
        (of(v={"$id": "//[", "$ref": "#"}) | {"$id": "http://h/"}, "SCHEMA_SELF_REFERENCE", "/properties/v"),
    ],
)
def test_a_schema_that_cannot_be_relied_on_is_refused_by_name(
    schema: JsonObject, code: str, pointer: str
) -> None:
    assert codes(schema) == [(code, pointer)]


def test_an_output_may_be_of_any_type() -> None:
    assert codes({"type": "string"}, "output") == []


def test_references_within_the_document_are_kept() -> None:
    schema = of(a={"$ref": "#/$defs/a"}, b={"$ref": "#named"}, c={"$ref": "urn:x:c"}, d={"$ref": "#/$defs/t"})
    schema["$defs"] = {
        "a": {"type": "string"},
        "b": {"$anchor": "named", "type": "string"},
        "c": {"$id": "urn:x:c", "$ref": "#/$defs/inner", "$defs": {"inner": {"type": "string"}}},
        "t": True,
    }
    assert codes(schema) == []
    assert faults(schema, {"a": "", "b": "", "c": "", "d": 1}) == ()
    assert [fault.pointer for fault in faults(schema, {"a": 1, "b": 1, "c": 1})] == ["/a", "/b", "/c"]


def test_a_reference_to_the_dialect_itself_needs_no_fetching() -> None:
    schema = of(v={"$ref": "https://json-schema.org/draft/2020-12/schema"})
    assert codes(schema) == []
    assert faults(schema, {"v": {"type": "objekt"}}) != ()


def test_schemas_too_deep_or_with_too_many_parts_are_refused() -> None:
    deep: JsonObject = {"type": "string"}
    for _ in range(80):
        deep = {"not": deep}
    wide = of(**{f"p{index}": {} for index in range(10_001)})
    assert codes(of(v=deep)) == [("SCHEMA_UNBOUNDED", "")]
    assert codes(wide) == [("SCHEMA_UNBOUNDED", "")]


def test_a_schema_whose_references_multiply_is_refused() -> None:
    parts: JsonObject = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)}
    schema = of(v={"$ref": "#/$defs/a0"}) | {"$defs": parts | {"a40": {"type": "string"}}}
    assert [code for code, _ in codes(schema)] == ["SCHEMA_UNBOUNDED"]


def test_a_recursive_schema_is_kept_and_judges_at_depth() -> None:
    search: JsonObject = of(field={"type": "string"}, any={"type": "array", "items": {"$ref": "#"}})
    assert codes(search) == []
    assert faults(search, {"any": [{"any": [{"field": "x"}]}]}) == ()
    found = faults(search, {"any": [{"any": [{"field": 7}]}]})
    assert [fault.pointer for fault in found] == ["/any/0/any/0/field"]


def test_a_frozen_contract_is_checked_and_compiled_like_a_plain_one() -> None:
    frozen: Any = freeze(TICKET)
    assert codes(frozen) == []
    assert isinstance(compile_schema(frozen, True).validate(freeze({"ticket_id": 1, "body": ""})), Valid)


def test_compiling_what_was_never_checked_fails_by_name() -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema(of(v={"type": "objekt"}), False)
    assert (caught.value.code, caught.value.pointer) == ("SCHEMA_BAD", "/properties/v/type")


# --- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "pointer", "nearest"),
    [
        (of(max_depth={"type": "integer", "default": 3}), {"depth": 1}, "/depth", "max_depth"),
        (REFUND, {"order_id": "ord_1", "amount": 5, "dryRun": True}, "/dryRun", "dry_run"),
        (
            of(where=of(state={"type": "string"}) | {"additionalProperties": False}),
            {"where": {"status": "open"}},
            "/where/status",
            "state",
        ),
        (of(a=of(b={"$ref": "#/$defs/c"})) | {"$defs": {"c": of(title={})}}, {"a": {"b": {"titel": 1}}},
         "/a/b/titel", "title"),
        (of(v={"type": "array", "items": of(color={})}), {"v": [{}, {"colour": 1}]}, "/v/1/colour", "color"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_named_with_the_nearest_known_one(
    schema: JsonObject, value: Json, pointer: str, nearest: str
) -> None:
    (fault,) = faults(schema, value)
    assert (fault.pointer, fault.known_nearest) == (pointer, nearest)
    name = pointer.rpartition("/")[2]
    assert fault.message == f"unknown key '{name}'; the nearest known one is '{nearest}'"


def test_a_missing_key_is_named_at_its_object() -> None:
    (fault,) = faults(TICKET, {"ticket_id": 1})
    assert (fault.pointer, fault.keyword) == ("", "required")
    assert '"body"' in fault.message


def test_messages_never_repeat_the_value() -> None:
    schema = of(
        a={"type": "string", "maxLength": 3},
        b={"enum": ["x"]},
        c={"const": 1},
        d={"pattern": "^y$"},
        e={"format": "email"},
        f={"anyOf": [{"type": "integer"}, {"maxLength": 2}]},
        g={"not": {}},
        h={"maximum": 1},
        i={"uniqueItems": True},
    )
    secret = "tok3n-of-a-secret"
    value: Json = dict.fromkeys("abcdefg", secret) | {"h": 987654321, "i": [secret, secret]}
    found = faults(schema, value)
    assert {fault.pointer for fault in found} == {f"/{name}" for name in "abcdefghi"}
    assert not any(secret in fault.message or "987654321" in fault.message for fault in found)


def test_faults_are_in_order_the_same_each_time_and_at_most_twenty() -> None:
    schema = of(v={"type": "array", "items": {"type": "integer"}})
    value: Json = {"v": ["x"] * 50_000, "w": 1}
    first = faults(schema, value)
    assert len(first) == 20
    assert list(first) == sorted(first)
    assert first == faults(schema, value)
    many: Json = {f"k{index}": 1 for index in range(1_000)}
    assert len(faults(schema, many)) == 20


def test_pointers_escape_what_pointers_must() -> None:
    named: JsonObject = {"a/b~c": {"type": "string"}}
    (fault,) = faults(of(**named), {"a/b~c": 1})
    assert fault.pointer == "/a~1b~0c"


def test_the_alternative_that_came_closest_is_told() -> None:
    schema = of(v={"anyOf": [{"type": "null"}, of(n={"type": "integer"}), {"type": "array", "items": False}]})
    assert "/v/n" in {fault.pointer for fault in faults(schema, {"v": {"n": "x"}})}


def test_a_value_too_deep_for_the_engine_is_refused_not_run() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    (fault,) = faults({"type": "object"}, value)
    assert fault.keyword == "depth"
    while value:
        value = value[0]


def test_a_compiled_schema_hands_out_copies_only() -> None:
    compiled = compile_schema(TICKET, True)
    compiled.schema.clear()
    assert compiled.schema["additionalProperties"] is False
    assert "additionalProperties" not in TICKET


# --- anything at all -----------------------------------------------------------------------------

WORDS = """$id $ref $dynamicRef $anchor $dynamicAnchor $schema $defs type properties patternProperties items
prefixItems additionalProperties unevaluatedProperties unevaluatedItems allOf anyOf oneOf not if then else
contains dependentSchemas propertyNames required enum const pattern format minimum a"""
KEYWORDS = st.sampled_from(WORDS.split())
TEXTS = "# #/ #a #/$defs/a #/allOf/0 a a#b http://h/ http://[x //[ //[# urn:x urn:x#a % #%zz object [ (?=a)"
ODD = st.sampled_from([None, True, False, 0, -1.5, "", *TEXTS.split()])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    ODD,
    lambda inner: st.dictionaries(KEYWORDS, inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=25,
)


@settings(max_examples=1_000, deadline=None)
@given(st.dictionaries(KEYWORDS, ANYTHING, max_size=6), ANYTHING)
def test_no_document_ends_in_anything_but_refusals_or_a_judging_schema(schema: Any, value: Any) -> None:
    unknown_formats(schema)
    if check_schema(schema, role="output") == []:
        for closed in (True, False):
            compile_schema(schema, closed).validate(value)
