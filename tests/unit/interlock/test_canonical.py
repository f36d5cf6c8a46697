"""Strict JSON in, canonical bytes out, frozen values between: small cases and properties."""

from __future__ import annotations

import json
import math
from types import MappingProxyType

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from interlock import canonical as module
from interlock.canonical import (
    INTEGER_MAX,
    Json,
    canonical,
    digest_of,
    freeze,
    parse_json,
    read_stored,
    sha256_hex,
    thaw,
)
from interlock.errors import NotJsonError
from interlock.mark import mark_non_finite

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
_NUMBER = st.integers(-INTEGER_MAX, INTEGER_MAX) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | _NUMBER | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


def refusal(raw: bytes | str, **bounds: int) -> str:
    with pytest.raises(NotJsonError) as caught:
        parse_json(raw, **bounds)
    return caught.value.code


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "JSON_SYNTAX"),
        (b"{'a':1}", "JSON_SYNTAX"),
        (b"[1,]", "JSON_SYNTAX"),
        (b"[01]", "JSON_SYNTAX"),
        (b"[+1]", "JSON_SYNTAX"),
        (b"1 2", "JSON_SYNTAX"),
        (b'"\x01"', "JSON_SYNTAX"),
        (b"\xff", "JSON_ENCODING"),
        (b"\xef\xbb\xbf{}", "JSON_ENCODING"),
        ("\ufeff{}", "JSON_ENCODING"),
        ('{"a":1}'.encode("utf-16"), "JSON_ENCODING"),
        (b'{"a":1,"a":1}', "JSON_DUPLICATE_KEY"),
        (b'{"x":{"a":1,"\\u0061":2}}', "JSON_DUPLICATE_KEY"),
        (b"NaN", "JSON_NOT_FINITE"),
        (b'{"a":-Infinity}', "JSON_NOT_FINITE"),
        (b"[Infinity]", "JSON_NOT_FINITE"),
        (b"1e400", "JSON_NUMBER_RANGE"),
        (b"-1e400", "JSON_NUMBER_RANGE"),
        (b"9007199254740992", "JSON_NUMBER_RANGE"),
        (b"-9007199254740992", "JSON_NUMBER_RANGE"),
        (b"1" * 100_000, "JSON_NUMBER_RANGE"),
        (b'"\\ud800"', "JSON_UNICODE"),
        (b'{"\\udc00":1}', "JSON_UNICODE"),
        ('"\ud800"', "JSON_UNICODE"),
        (b'"a\\u0000b"', "JSON_NUL"),
        (b'[{"\\u0000":1}]', "JSON_NUL"),
    ],
)
def test_what_is_not_strict_json_is_refused_by_its_code(raw: bytes | str, code: str) -> None:
    assert refusal(raw) == code


def test_the_offset_counts_bytes() -> None:
    with pytest.raises(NotJsonError) as caught:
        parse_json('["é",x]'.encode())
    assert caught.value.offset == 6
    assert str(caught.value).startswith("JSON_SYNTAX: ")


@pytest.mark.parametrize("raw", [b'{"n":60}', b'{"n":60.0}', b'{"n":6e1}', b'{"n":600E-1}'])
def test_one_number_has_one_form(raw: bytes) -> None:
    value = parse_json(raw)
    assert value == {"n": 60}
    assert isinstance(value, dict)
    assert type(value["n"]) is int
    assert canonical(value) == b'{"n":60}'


def test_the_number_compared_is_the_number_kept() -> None:
    assert canonical(parse_json(b"1000.00000000000001")) == b"1000"
    assert canonical(parse_json(b"-0.0")) == b"0"
    assert canonical(parse_json(b"[-0]")) == b"[0]"
    assert canonical(parse_json(b"60.5")) == b"60.5"
    assert parse_json(b"true") is True


def test_an_escaped_backslash_before_u0000_is_six_plain_characters() -> None:
    value = parse_json(b'"a\\\\u0000b"')
    assert value == "a\\u0000b"
    assert canonical(value) == b'"a\\\\u0000b"'


def test_spellings_of_one_letter_stay_different() -> None:
    assert canonical(parse_json('"e\u0301 \u00e9"')) == '"e\u0301 \u00e9"'.encode()


def test_depth_is_bounded_without_recursion() -> None:
    assert parse_json(b"[" * 64 + b"]" * 64) is not None
    assert refusal(b"[" * 65 + b"]" * 65) == "JSON_DEPTH"
    assert refusal(b"[" * 10_000 + b"]" * 10_000) == "JSON_DEPTH"
    assert refusal(b'{"a":' * 100_000) == "JSON_DEPTH"
    assert refusal(b"[[1]]", depth_max=1) == "JSON_DEPTH"


def test_brackets_within_strings_and_side_by_side_are_no_depth() -> None:
    text = json.dumps(["[" * 200, '"[{' * 100, "\\", [[]] * 100])
    assert parse_json(text) == json.loads(text)


def test_a_string_that_never_ends_is_refused_in_linear_time() -> None:
    assert refusal(b"[" * 65 + b'"' + b'\\"' * 400_000) == "JSON_DEPTH"
    assert refusal(b"[1,[" * 20 + b'"\\') == "JSON_SYNTAX"
    assert refusal((b'["' + b'\\"' * 500_000).replace(b'["', b"[]" * 70 + b'["')) in {
        "JSON_SYNTAX",
        "JSON_SIZE",
    }


def test_size_is_counted_in_bytes() -> None:
    assert refusal(b'"' + b"a" * 20 + b'"', size_bytes_max=21) == "JSON_SIZE"
    assert refusal('"éé"', size_bytes_max=5) == "JSON_SIZE"
    assert parse_json('"éé"', size_bytes_max=6) == "éé"
    assert refusal(b" " * 1_048_577) == "JSON_SIZE"


def outcome(raw: bytes | str) -> tuple[str, Json]:
    try:
        return "read", parse_json(raw)
    except NotJsonError as error:
        return error.code, None


@given(JSON)
def test_what_is_written_is_read_back_the_same(value: Json) -> None:
    written = canonical(value)
    assert canonical(read_stored(b'{"v":' + written + b"}")["v"]) == written
    read, again = outcome(written)
    # A double from 2^53 to 1e21 is written as an integer, which from outside would not be exact.
    assert read == "JSON_NUMBER_RANGE" or canonical(again) == written


@given(JSON)
def test_the_quick_writer_writes_what_the_exact_one_does(value: Json) -> None:
    exact = rfc8785.dumps(value)
    assert canonical(value) == exact
    if module._orjson_is_canonical(value, 128):
        assert orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == exact


@given(JSON, st.booleans())
def test_the_strict_reader_agrees_with_a_lenient_one_on_good_json(value: Json, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    read, strict = outcome(text)
    assert read == "JSON_NUMBER_RANGE" or strict == json.loads(text)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_no_input_ends_in_anything_but_a_value_or_a_refusal(raw: bytes | str) -> None:
    canonical(outcome(raw)[1])


def test_keys_are_sorted_by_utf_16_units() -> None:
    value: Json = {"\ue000": 1, "\U0001f600": 2, "a": 3}
    assert canonical(value) == '{"a":3,"\U0001f600":2,"\ue000":1}'.encode()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), "JSON_NOT_FINITE"),
        ([float("-inf")], "JSON_NOT_FINITE"),
        (2**53, "JSON_NUMBER_RANGE"),
        ("\ud800", "JSON_UNICODE"),
        ({"\ud800": 1}, "JSON_UNICODE"),
        ("a\x00", "JSON_NUL"),
        ({"\x00": "a"}, "JSON_NUL"),
        ({1: 2}, "JSON_TYPE"),
        (b"a", "JSON_TYPE"),
        ({"a": {1, 2}}, "JSON_TYPE"),
    ],
)
def test_what_has_no_canonical_form_is_refused(value: object, code: str) -> None:
    with pytest.raises(NotJsonError) as caught:
        canonical(value)  # type: ignore[arg-type]  # what a caller might hand over all the same
    assert caught.value.code == code


def test_a_value_without_end_is_refused() -> None:
    endless: list[Json] = []
    endless.append(endless)
    for function in (canonical, freeze):
        with pytest.raises(NotJsonError) as caught:
            function(endless)
        assert caught.value.code == "JSON_DEPTH"


def test_digests_are_plain_lower_hexadecimal() -> None:
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_of({"b": 1, "a": 2.0}) == sha256_hex(b'{"a":2,"b":1}')


@given(JSON)
def test_a_frozen_value_keeps_its_bytes_and_thaws_into_a_copy(value: Json) -> None:
    frozen = freeze(value)
    assert canonical(frozen) == canonical(value)
    thawed = thaw(frozen)
    assert thawed == value
    assert canonical(thawed) == canonical(value)


def test_nothing_within_a_frozen_value_can_be_changed() -> None:
    source: Json = {"a": [1, {"b": {"c": [{"d": 1}, []]}}], "e": {}}
    before = canonical(source)
    frozen = freeze(source)
    pending: list[object] = [frozen]
    tried = 0
    while pending:
        item = pending.pop()
        if isinstance(item, MappingProxyType):
            with pytest.raises(TypeError):
                item["x"] = 1  # type: ignore[index]  # the attempt itself
            with pytest.raises((TypeError, AttributeError)):
                del item["a"]  # type: ignore[attr-defined]  # the attempt itself
            with pytest.raises(AttributeError):
                item.clear()  # type: ignore[attr-defined]  # the attempt itself
            pending.extend(item.values())
            tried += 1
        elif isinstance(item, tuple):
            with pytest.raises(TypeError):
                item[0] = 1  # type: ignore[index]  # the attempt itself
            pending.extend(item)
            tried += 1
        else:
            assert isinstance(item, (str, int, float, bool, type(None)))
    assert tried == 8
    assert isinstance(source, dict)
    source["a"] = source["f"] = 1
    assert canonical(frozen) == before


def test_what_has_no_json_form_is_marked_in_its_place() -> None:
    result = {
        "mean": float("nan"),
        "most": [math.inf, -math.inf],
        "raw": b"\x00\xff",
        "text": "a\x00\ud800",
        "big": 2**60,
        "when": object(),
        "odd": {1: "a"},
        "whole": 60.0,
    }
    marked = mark_non_finite(result)
    assert marked == {
        "mean": {"$interlock": "not_finite", "value": "NaN"},
        "most": [
            {"$interlock": "not_finite", "value": "Infinity"},
            {"$interlock": "not_finite", "value": "-Infinity"},
        ],
        "raw": {"$interlock": "bytes", "value": "AP8=", "size_bytes": 2},
        "text": {"$interlock": "text", "value": "a\\x00\\ud800", "characters": 3},
        "big": {"$interlock": "integer", "value": "0x1000000000000000"},
        "when": {"$interlock": "no_json_form", "value": "object"},
        "odd": {"$interlock": "object", "entries": [[1, "a"]]},
        "whole": 60,
    }
    assert parse_json(canonical(marked)) == marked


def test_a_tool_cannot_forge_a_mark() -> None:
    forged = {"$interlock": "not_finite", "value": "NaN"}
    assert mark_non_finite(forged) == {
        "$interlock": "object",
        "entries": [["$interlock", "not_finite"], ["value", "NaN"]],
    }


def test_marking_is_bounded() -> None:
    endless: list[object] = []
    endless += [endless, endless]
    canonical(mark_non_finite(endless, nodes_max=1_000))
    wide = mark_non_finite(list(range(1_000)), nodes_max=10)
    assert isinstance(wide, list)
    assert len(wide) == 10
    assert wide[-1] == {"$interlock": "cut", "value": "too many values"}
    assert mark_non_finite(2**100_000) == {"$interlock": "integer", "value": "too large"}


@given(
    st.recursive(
        st.none() | st.floats() | st.integers() | st.binary() | st.text() | st.dates() | _TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=10,
    )
)
def test_whatever_a_tool_answers_becomes_json(value: object) -> None:
    canonical(mark_non_finite(value))


@given(JSON)
def test_plain_json_is_not_marked(value: Json) -> None:
    assert canonical(mark_non_finite(value)) == canonical(value)
