"""Closing: every object that lists its keys refuses others, and compositions still accept theirs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.canonical import Json, JsonObject, canonical
from interlock.schema import Invalid, Valid, check_schema, close_schema, compile_schema


def of(**properties: Json) -> JsonObject:
    return {"type": "object", "properties": properties}


A, B = of(a={"type": "integer"}), of(b={"type": "integer"})
PERSON = of(name={"type": "string"}, address=of(city={"type": "string"}))
NESTED: JsonObject = {
    "allOf": [of(p=of(x={}), q={"items": of(x={})}), of(p=of(y={}), q={"items": of(y={})})],
}
UNION: JsonObject = {
    "oneOf": [
        of(kind={"const": "a"}, data=of(x={})) | {"required": ["kind"]},
        of(kind={"const": "b"}, data=of(y={})) | {"required": ["kind"]},
    ]
}
CONDITION: JsonObject = of(kind={}, size=of(w={}, h={})) | {
    "if": of(kind={"const": "box"}, size=of(w={"type": "integer"})),
    "then": of(lid={}),
    "else": of(rim={}),
}
TREE = of(name={}, children={"type": "array", "items": {"$ref": "#"}})
BASE: JsonObject = {
    "$defs": {"base": of(id={}, place=of(row={}))},
    "type": "object",
    "properties": {
        "plain": {"$ref": "#/$defs/base"},
        "wider": {"allOf": [{"$ref": "#/$defs/base"}, of(note={}, place=of(column={}))]},
    },
}


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        # At every depth.
        (A, [{}, {"a": 1}], [{"b": 1}]),
        (PERSON, [{"name": "", "address": {"city": ""}}], [{"address": {"town": ""}}]),
        (of(v={"type": "array", "items": A}), [{"v": [{"a": 1}]}], [{"v": [{"a": 1}, {"b": 1}]}]),
        (of(v={"prefixItems": [A, B]}), [{"v": [{"a": 1}, {"b": 1}]}], [{"v": [{"b": 1}]}]),
        (of() | {"additionalProperties": A}, [{"any": {"a": 1}}], [{"any": {"b": 1}}]),
        ({"patternProperties": {"^x-": A}}, [{"x-1": {"a": 1}}], [{"x-1": {"b": 1}}, {"y": 1}]),
        (of(a=A) | {"patternProperties": {"^x-": {}}}, [{"a": {"a": 1}, "x-": 1}], [{"a": {"b": 1}}]),
        # What speaks for itself, or lists nothing, is left as it is.
        (A | {"additionalProperties": True}, [{"b": 1}], [{"a": ""}]),
        (A | {"additionalProperties": {"type": "string"}}, [{"b": ""}], [{"b": 1}]),
        (A | {"unevaluatedProperties": True}, [{"b": 1}], []),
        ({"type": "object"}, [{"b": 1}], []),
        (of(v={"type": "object"}), [{"v": {"b": 1}}], [{"w": 1}]),
        # Parts that describe one object together.
        ({"allOf": [A, B]}, [{"a": 1, "b": 1}], [{"c": 1}, {"a": 1, "c": 1}]),
        (A | {"allOf": [B]}, [{"a": 1, "b": 1}], [{"c": 1}]),
        ({"anyOf": [A, B]}, [{"a": 1}, {"a": 1, "b": 1}], [{"c": 1}, {"a": "", "b": 1}]),
        (A | {"dependentSchemas": {"a": B}}, [{"a": 1, "b": 1}], [{"b": 1}, {"a": 1, "c": 1}]),
        (
            UNION,
            [{"kind": "a", "data": {"x": 1}}, {"kind": "b", "data": {"y": 1}}],
            [{"kind": "a", "data": {"y": 1}}, {"kind": "a", "c": 1}, {"kind": "a", "data": {"x": 1, "y": 1}}],
        ),
        (
            CONDITION,
            [{"kind": "box", "lid": 1, "size": {"w": 1, "h": 1}}, {"kind": "cup", "rim": 1}, {"lid": 1}],
            [{"kind": "box", "lid": 1, "size": {"d": 1}}, {"kind": "cup", "rim": 1, "lod": 1}],
        ),
        # A key that only the condition names.
        ({"if": of(kind={"const": 1}), "then": A, "else": B}, [{"kind": 1, "a": 1}, {"kind": 2, "b": 1}],
         [{"kind": 2, "c": 1}]),
        # Parts that describe one property together.
        (
            NESTED,
            [{"p": {"x": 1, "y": 1}}, {"q": [{"x": 1, "y": 1}]}, {"p": {"x": 1}}],
            [{"p": {"z": 1}}, {"q": [{"x": 1, "z": 1}]}, {"r": 1}],
        ),
        (
            {"allOf": [of(p=of(p=of(x={}))), of(p=of(p=of(y={})))]},
            [{"p": {"p": {"x": 1, "y": 1}}}],
            [{"p": {"p": {"z": 1}}}, {"p": {"z": {}}}],
        ),
        # References.
        (TREE, [{"children": [{"name": 1, "children": []}]}], [{"children": [{"children": [{"nam": 1}]}]}]),
        (
            BASE,
            [
                {"plain": {"id": 1, "place": {"row": 1}}},
                {"wider": {"id": 1, "note": 1, "place": {"row": 1, "column": 1}}},
            ],
            [
                {"plain": {"id": 1, "note": 1}},
                {"plain": {"place": {"column": 1}}},
                {"wider": {"other": 1}},
                {"wider": {"place": {"depth": 1}}},
            ],
        ),
        (
            of(v={"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}) | {"$defs": {"a": A}},
            [{"v": None}, {"v": {"a": 1}}],
            [{"v": {"b": 1}}],
        ),
        (of(next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}), [{"next": {"next": None}}],
         [{"next": {"nxt": None}}, {"nxt": 1}]),
        # Where stricter would mean laxer, nothing is touched.
        (of(v={"not": A}), [{"v": 1}, {"v": {"a": ""}}], [{"v": {"a": 1}}, {"v": {"b": 1}}]),
        (of(v={"contains": A, "maxContains": 1}), [{"v": [{"a": 1, "z": 1}]}], [{"v": [{"a": 1}, {"z": 1}]}]),
        (of(v={"propertyNames": {"maxLength": 2}}), [{"v": {"ab": 1}}], [{"v": {"abc": 1}}]),
    ],
)  # fmt: skip
def test_a_closed_schema_accepts_its_own_and_refuses_other_keys(
    schema: JsonObject, accepted: list[Json], refused: list[Json]
) -> None:
    compiled = compile_schema(schema, True)
    for value in accepted:
        assert compiled.validate(value) == Valid(), value
    for value in refused:
        assert isinstance(compiled.validate(value), Invalid), value


@pytest.mark.parametrize("schema", [NESTED, UNION, CONDITION, TREE, BASE])
def test_closing_leaves_a_valid_schema_and_its_source_as_they_were(schema: JsonObject) -> None:
    before = canonical(schema)
    closed = close_schema(schema)
    assert canonical(schema) == before
    assert canonical(close_schema(schema)) == canonical(closed)
    assert check_schema(closed, role="output") == []


def test_an_opted_out_tool_keeps_its_schema_open() -> None:
    assert compile_schema(A, False).validate({"b": 1}) == Valid()


def test_a_key_known_to_another_alternative_is_told_so() -> None:
    answer = compile_schema(UNION, True).validate({"kind": "a", "data": {"x": 1}, "dta": 1})
    assert isinstance(answer, Invalid)
    (fault,) = answer.errors
    assert (fault.pointer, fault.known_nearest) == ("/dta", "data")


def test_schemas_whose_parts_combine_without_end_are_refused_in_bounded_time() -> None:
    # Which parts meet at a place depends on the last twenty keys that lead there: 2^20 combinations.
    parts: JsonObject = {
        f"n{i}": of(a={"$ref": f"#/$defs/n{i + 1}"}, b={"$ref": f"#/$defs/n{i + 1}"}) for i in range(1, 20)
    }
    first = of(a={"allOf": [{"$ref": "#/$defs/n0"}, {"$ref": "#/$defs/n1"}]}, b={"$ref": "#/$defs/n0"})
    parts |= {"n0": first, "n20": of(z={})}
    schema = of(v={"$ref": "#/$defs/n0"}) | {"$defs": parts}
    assert [refusal.code for refusal in check_schema(schema, role="parameters")] == ["SCHEMA_UNBOUNDED"]


NAMES = st.sampled_from(["a", "b", "c"])
LEAF = st.sampled_from([{"type": "integer"}, {"type": "string"}, {}])


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    listing = st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda p: of(**p))
    several = st.lists(listing | inner, min_size=1, max_size=3)
    combined = st.builds(
        lambda key, parts: {key: parts}, st.sampled_from(["allOf", "anyOf", "oneOf"]), several
    )
    condition = st.builds(lambda i, t, e: {"if": i, "then": t, "else": e}, listing, listing, listing)
    beside = st.builds(lambda one, two: one | two, listing, combined | condition)
    arrays = inner.map(lambda item: {"type": "array", "items": item})
    inverse = inner.map(lambda part: {"not": part})
    return st.one_of(listing, combined, condition, beside, arrays, inverse)


SCHEMAS: st.SearchStrategy[Any] = st.recursive(LEAF, _composed, max_leaves=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 1) | st.just("s"),
    lambda inner: st.dictionaries(NAMES | st.just("z"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, VALUES)
def test_closing_never_accepts_what_the_open_schema_refuses(schema: Any, value: Any) -> None:
    closed, open_ = compile_schema(schema, True), compile_schema(schema, False)
    if closed.validate(value) == Valid():
        assert open_.validate(value) == Valid()


MERGED: st.SearchStrategy[Any] = st.recursive(
    LEAF,
    lambda inner: st.lists(
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda p: of(**p)), min_size=1, max_size=3
    ).map(lambda parts: parts[0] if len(parts) == 1 else {"allOf": parts}),
    max_leaves=10,
)


def _unknown(schemas: list[Any], value: Any) -> bool:
    """An independent reading of `allOf`: whether any object holds a key that no part lists."""
    flat = [part for schema in schemas for part in (schema, *schema.get("allOf", ()))]
    listed = [part["properties"] for part in flat if "properties" in part]
    if not isinstance(value, dict) or not listed:
        return False
    return any(
        not any(key in names for names in listed)
        or _unknown([names[key] for names in listed if key in names], item)
        for key, item in value.items()
    )


@settings(max_examples=400, deadline=None)
@given(MERGED, VALUES)
def test_parts_of_all_of_are_closed_by_what_they_list_together(schema: Any, value: Any) -> None:
    fits = compile_schema(schema, False).validate(value) == Valid()
    closed = compile_schema(schema, True).validate(value) == Valid()
    assert closed is (fits and not _unknown([schema], value))
