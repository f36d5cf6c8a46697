"""A marked value is found wherever the schema may put it, and a mark that no value bears is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from governance import secrecy
from governance.adapters.aes_sealer import AesSealer
from governance.catalogue import add_tools, contract_reasons
from governance.secrecy import Secrecy
from governance.sensitive import masked_arguments, opened_arguments, sealed_arguments
from interlock.canonical import canonical, freeze
from interlock.contract import Effects, Tool
from interlock.event import invocation_stream
from tests.support.court import Court

MARKED: dict[str, Any] = {"type": "string", "sensitive": True}
PLAIN: dict[str, Any] = {"type": "string"}
SEALER = AesSealer(bytes(32))


def of(**more: Any) -> dict[str, Any]:
    return {"type": "object", **more}


def tool(parameters: dict[str, Any], name: str = "t", **more: Any) -> Tool:
    return Tool(catalogue="x", name=name, parameters=parameters, effects=Effects(idempotent=True), **more)


def codes(parameters: dict[str, Any], **more: Any) -> list[tuple[str, str | None]]:
    return [(reason.code, reason.pointer) for reason in contract_reasons(tool(parameters, **more))]


FOUND: list[tuple[dict[str, Any], Any, tuple[str, ...]]] = [
    (of(properties={"a": MARKED, "b": PLAIN}), {"a": "x", "b": "y"}, ("/a",)),
    (of(patternProperties={"^t": MARKED, "^u": PLAIN}), {"t1": "x", "u": "y"}, ("/t1",)),
    (of(additionalProperties=MARKED, properties={"b": PLAIN}), {"t/1~": "x", "b": "y"}, ("/t~11~0",)),
    (of(unevaluatedProperties=MARKED, properties={"b": PLAIN}), {"a": "x", "b": "y"}, ("/a",)),
    (of(properties={"v": MARKED, "next": {"$ref": "#"}}), {"next": {"v": "x"}}, ("/next/v",)),
    (of(properties={"a": {"$ref": "#/$defs/s%20x"}}, **{"$defs": {"s x": MARKED}}), {"a": "x"}, ("/a",)),
    (
        of(properties={"a": {"$ref": "#s"}}, **{"$defs": {"s": {**MARKED, "$anchor": "s"}}}),
        {"a": "x"},
        ("/a",),
    ),
    (
        of(properties={"a": {"$dynamicRef": "#s"}}, **{"$defs": {"s": {**MARKED, "$dynamicAnchor": "s"}}}),
        {"a": "x"},
        ("/a",),
    ),
    (
        of(properties={"a": {"$ref": "urn:s"}}, **{"$defs": {"s": {**MARKED, "$id": "urn:s"}}}),
        {"a": "x"},
        ("/a",),
    ),
    (of(properties={"a": {"$ref": "#/parts/s"}}, parts={"s": MARKED}), {"a": "x"}, ("/a",)),
    (of(dependentSchemas={"b": {"properties": {"a": MARKED}}}), {"a": "x", "b": 1}, ("/a",)),
    (of(**{"if": {"properties": {"a": MARKED}}}), {"a": "x"}, ("/a",)),
    (of(**{"if": {}, "then": {"properties": {"a": MARKED}}}), {"a": "x"}, ("/a",)),
    (of(**{"if": {}, "else": {"properties": {"a": MARKED}}}), {"a": "x"}, ("/a",)),
    (of(anyOf=[{}, {"oneOf": [{"allOf": [{"properties": {"a": MARKED}}]}]}]), {"a": "x"}, ("/a",)),
    (of(properties={"l": {"items": MARKED}}), {"l": ["x", "y"]}, ("/l/0", "/l/1")),
    (of(properties={"l": {"prefixItems": [PLAIN, MARKED]}}), {"l": ["x", "y", "z"]}, ("/l/1",)),
    (of(properties={"l": {"unevaluatedItems": MARKED}}), {"l": ["x"]}, ("/l/0",)),
    (of(properties={"l": {"contains": MARKED}}), {"l": ["x"]}, ("/l/0",)),
    (of(properties={"a": {"not": {"not": MARKED}}}), {"a": "x"}, ("/a",)),
    (of(properties={"a": {"propertyNames": MARKED}}), {"a": {"x": 1}}, ("/a",)),
    (of(properties={"a": {"contentSchema": MARKED}}), {"a": "x"}, ("/a",)),
    (of(properties={"a": {"sensitive": "yes"}}), {"a": "x"}, ("/a",)),
    (of(sensitive=True), {"a": "x"}, ("",)),
]


@pytest.mark.parametrize(("schema", "value", "pointers"), FOUND)
def test_a_mark_is_found_wherever_it_stands(schema: Any, value: Any, pointers: tuple[str, ...]) -> None:
    assert Secrecy(schema).pointers(value) == pointers
    assert Secrecy(freeze(schema)).pointers(value) == pointers  # type: ignore[arg-type]  # an object


@pytest.mark.parametrize("value", [{"key": "x"}, [{"key": "x"}], "x", {"sensitive": "x"}])
def test_without_a_mark_no_value_is_sensitive(value: Any) -> None:
    schema: Any = {"properties": {"key": {"sensitive": False}, "sensitive": {"type": "string"}}}
    assert not Secrecy(schema).is_any
    assert Secrecy(schema).pointers(value) == ()


def test_a_recursive_schema_is_followed_as_deep_as_the_value_is() -> None:
    schema = of(
        properties={"n": {"$ref": "#/$defs/n"}},
        **{"$defs": {"n": of(properties={"v": MARKED, "next": {"$ref": "#/$defs/n"}})}},
    )
    deep: dict[str, Any] = {"v": "x"}
    for _ in range(60):
        deep = {"next": deep}
    assert Secrecy(schema).pointers({"n": deep}) == ("/n" + "/next" * 60 + "/v",)


def test_at_a_bound_everything_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = of(properties={"l": {"items": MARKED}, "b": PLAIN})
    many: Any = {"l": ["x"] * (secrecy.POINTERS_MAX + 1)}
    assert Secrecy(schema).pointers(many) == ("",)
    monkeypatch.setattr(secrecy, "STEPS_MAX", 1)
    assert Secrecy(schema).pointers({"l": ["x"], "b": "y"}) == ("/l",)


def test_a_mark_below_a_marked_value_is_part_of_it() -> None:
    inner = of(properties={"b": MARKED})
    schema = of(properties={"a": inner}, allOf=[{"properties": {"a": {"sensitive": True}}}])
    assert Secrecy(schema).pointers({"a": {"b": "x"}}) == ("/a",)


# --- registration -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        ({"not": {"not": MARKED}}, "/properties/a/not"),
        ({"propertyNames": MARKED}, "/properties/a/propertyNames"),
        ({"contentSchema": {"properties": {"b": MARKED}}}, "/properties/a/contentSchema"),
        ({"type": "string", "sensitive": "yes"}, "/properties/a/sensitive"),
        ({"dependencies": {"b": {"properties": {"a": MARKED}}}}, "/properties/a/dependencies"),
    ],
)
def test_a_mark_that_no_value_bears_is_refused(part: dict[str, Any], pointer: str) -> None:
    assert ("SENSITIVE_MISPLACED", pointer) in codes(of(properties={"a": part}))


def test_a_mark_in_an_output_is_refused() -> None:
    output = of(properties={"n": {"type": "integer"}, "s": MARKED}, required=["n", "s"])
    assert codes(of(), output=output) == [("SENSITIVE_MISPLACED", "/properties/s/sensitive")]


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples"])
def test_data_that_looks_like_a_mark_is_none(keyword: str) -> None:
    data: Any = {"sensitive": True}
    said = data if keyword in ("default", "const") else [data]
    assert codes(of(properties={"a": {keyword: said}, "sensitive": PLAIN})) == []


@pytest.mark.parametrize("case", range(19))
def test_a_mark_that_a_value_bears_is_registered(case: int) -> None:
    assert codes(FOUND[case][0]) == []


# --- no marked value is ever stored in clear ---------------------------------------------------------


@dataclass
class Growing:
    """A schema grown at random around marks, and a value that has a secret at each marked place."""

    draw: Any
    definitions: dict[str, Any]
    secrets: list[str]

    def part(self, depth: int) -> tuple[dict[str, Any], Any]:
        if depth == 0 or self.draw(st.integers(0, 4)) == 0:
            return self._leaf()
        schema, value = self.part(depth - 1)
        if self.draw(st.booleans()):
            return self._in_place(schema), value
        return self.below(schema, value)

    def _leaf(self) -> tuple[dict[str, Any], str]:
        if self.draw(st.integers(0, 3)) == 0:
            return PLAIN, "plain"
        self.secrets.append(f"s3cret-{len(self.secrets)}-")
        return MARKED, self.secrets[-1]

    def _in_place(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = f"d {len(self.definitions)}"
        anchor = f"a{len(self.definitions)}"
        match self.draw(st.integers(0, 7)):
            case 0:
                return {"allOf": [{}, schema]}
            case 1:
                return {"anyOf": [{"type": "null"}, schema]}
            case 2:
                return {"oneOf": [{"type": "null"}, schema]}
            case 3:
                return {"if": {}, "then": schema}
            case 4:
                return {"if": {"type": "null"}, "else": schema}
            case 5:
                return {"dependentSchemas": {"k": schema}, **schema}
            case 6:
                self.definitions[name] = schema
                return {"$ref": f"#/$defs/{name.replace(' ', '%20')}"}
            case _:
                self.definitions[name] = {"allOf": [schema], "$anchor": anchor}
                return {"$ref": f"#{anchor}"}

    def below(self, schema: dict[str, Any], value: Any) -> tuple[dict[str, Any], Any]:
        keyed = {"k": value}
        match self.draw(st.integers(0, 8)):
            case 0:
                return of(properties={"k": schema}), keyed
            case 1:
                return of(patternProperties={"^k": schema}), keyed
            case 2:
                return of(additionalProperties=schema), keyed
            case 3:
                return of(unevaluatedProperties=schema), keyed
            case 4:
                return of(properties={"k": {}}, dependentSchemas={"k": {"properties": {"k": schema}}}), keyed
            case 5:
                return {"type": "array", "items": schema}, [value]
            case 6:
                return {"type": "array", "prefixItems": [{}, schema]}, ["plain", value]
            case 7:
                return {"type": "array", "unevaluatedItems": schema}, [value]
            case _:
                return {"type": "array", "contains": schema}, [value]


@st.composite
def grown(draw: Any) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    growing = Growing(draw, {}, [])
    parts = {f"p{number}": growing.part(5) for number in range(draw(st.integers(1, 3)))}
    schema = of(properties={name: part for name, (part, _) in parts.items()})
    schema["$defs"] = growing.definitions
    return schema, {name: value for name, (_, value) in parts.items()}, growing.secrets


@given(grown())
@settings(max_examples=300, deadline=None)
def test_no_marked_value_is_stored_or_shown_in_clear(case: Any) -> None:
    schema, value, secrets = case
    pointers = Secrecy(schema).pointers(value)
    stored = sealed_arguments(value, pointers, SEALER, "i")
    assert not [secret for secret in secrets if secret.encode() in canonical(stored)]
    assert "s3cret" not in str(masked_arguments(stored, pointers))
    assert opened_arguments(stored, pointers, SEALER, "i") == value


@given(grown())
@settings(max_examples=60, deadline=None)
def test_no_marked_value_is_in_the_ledger(case: Any) -> None:
    schema, value, secrets = case
    court = Court()
    add_tools(court.ledger, [tool(schema)], added_by="test")
    answer = court.say("x/t", value)
    with court.ledger.read() as view:
        assert view.events([invocation_stream(str(answer.invocation_id))])
        kept = b"".join(event.payload for event in view.range(0, 1_000))
    assert not [secret for secret in secrets if secret.encode() in kept]
