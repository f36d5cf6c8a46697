"""The quick reader of strict JSON never answers otherwise than the exact one, which it leaves the rest to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import NotJsonError
from interlock.strict_json import _quickly_read, parse_json

STRINGS = st.sampled_from(
    ['""', '"a"', '"b"', '":"', '",{"', '"ü"', '"\x7f"', r'"\n"', r'"\u0000"', r'"\\"', '"a']
)
NUMBERS = st.sampled_from(
    ["0", "-0", "7", "-7", "1.5", "1.0", "1e3", "-0.0", "01", "1795000000000000", "9007199254740991",
     "9007199254740992", "-9007199254740992", "18446744073709551616", "1e400", "NaN"]
)  # fmt: skip
BLANKS = st.sampled_from(["", "", " ", "\n\t", "\v", "\ufeff"])


@st.composite
def texts(draw: Any, depth: int = 3) -> str:
    """Text that is JSON, or nearly: with keys that come twice, odd numbers, escapes and blanks."""
    kinds = ["string", "number", "word"] + (["object", "array"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    inner = texts(depth - 1)
    if kind == "object":
        members = draw(st.lists(st.tuples(STRINGS, BLANKS, BLANKS, inner), max_size=3))
        return f"{{{','.join(f'{a}{key}{b}:{value}' for key, a, b, value in members)}{draw(BLANKS)}}}"
    if kind == "array":
        return f"[{draw(BLANKS)}{','.join(draw(st.lists(inner, max_size=3)))}]"
    if kind == "word":
        return str(draw(st.sampled_from(["true", "false", "null", "nul"])))
    return str(draw(STRINGS if kind == "string" else NUMBERS))


def exact(raw: bytes, depth_max: int = 64) -> tuple[str, Any]:
    # A view of the same bytes is read by the exact reader alone.
    return outcome(memoryview(raw), depth_max)


def outcome(raw: Any, depth_max: int = 64) -> tuple[str, Any]:
    try:
        value = parse_json(raw, depth_max=depth_max)
    except NotJsonError as error:
        return error.code, (error.detail, error.offset)
    return "read", (json.dumps(value), types_of(value))


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, types_of(item)) for key, item in value.items()]
    return [types_of(item) for item in value] if isinstance(value, list) else type(value)


@given(texts(), st.integers(1, 4))
def test_both_readers_give_the_same_value_or_refusal(text: str, depth_max: int) -> None:
    raw = text.encode()
    assert outcome(raw, depth_max) == exact(raw, depth_max)


@given(st.binary(max_size=12).map(lambda tail: b'["' + tail + b'"]'))
def test_bytes_that_are_no_text_are_refused_alike(raw: bytes) -> None:
    assert outcome(raw) == exact(raw)


def test_the_outside_test_data_is_read_alike() -> None:
    folder = Path(__file__).resolve().parents[4] / "shared" / "suites" / "jsontestsuite"
    if not folder.is_dir():
        pytest.skip(f"the outside test data is not at {folder}")
    files = sorted(folder.rglob("*.json"))
    assert len(files) > 300
    for file in files:
        raw = file.read_bytes()
        assert outcome(raw) == exact(raw), file.name


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":1}', '{"a" :1,"a":2}', '{"a":{"b":1,"b":1}}', '[{"a":"","a":1}]', '{"":0,"":0}', '{"a":1.0}',
     '[9007199254740992]', '["\\u0041"]', '[1e2]', '[-0.0]', '"text"', "7", '[[[[[1]]]]]'],
)  # fmt: skip
def test_whatever_could_be_read_in_two_ways_is_left_to_the_exact_reader(text: str) -> None:
    assert _quickly_read(text.encode(), 4) is None


def test_a_usual_message_is_read_quickly() -> None:
    text = '{"tool": "echo", "arguments": {"value": [1, -7, true, null, "ü: {"]}, "until": 1795000000000000}'
    assert _quickly_read(text.encode(), 64) == json.loads(text)
