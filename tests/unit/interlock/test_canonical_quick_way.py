"""The quick ways of canonical JSON are only quicker: same bytes, same values, same refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from interlock.canonical import CANONICAL_DEPTH_MAX, INTEGER_MAX, canonical, read_stored
from interlock.errors import NotJsonError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NUMBERS = (
    st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2.0**53, -(2.0**53), 2.0**53 + 2, 9.9e15, 1e16, 1e17, 1e20, 1e21, 1795000000000000])
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(VALUES)
def test_the_bytes_are_those_of_the_exact_writer(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(TEXT, VALUES))
def test_what_was_stored_is_written_the_same_again(value: dict[str, Any]) -> None:
    stored = canonical(value)
    assert canonical(read_stored(stored)) == stored


@pytest.mark.parametrize("number", [2.0**53, -(2.0**53), 9.5e15, 1e16, 123456789012345680.0])
@pytest.mark.parametrize("spaced", [False, True])
def test_a_large_double_comes_back_as_one(number: float, spaced: bool) -> None:
    value: Any = {"a": [number], "b": number}
    stored = canonical(value)
    if spaced:
        stored = stored.replace(b":", b": ").replace(b"[", b"[ ")
    read = read_stored(stored)
    assert read == value
    assert isinstance(read["b"], float)


def nested(levels: int, innermost: Any) -> Any:
    for _ in range(levels):
        innermost = [innermost]
    return innermost


@pytest.mark.parametrize("innermost", [[], {}, ()])
def test_an_empty_container_counts_as_a_level(innermost: Any) -> None:
    assert canonical(nested(CANONICAL_DEPTH_MAX - 1, innermost))
    with pytest.raises(NotJsonError):
        canonical(nested(CANONICAL_DEPTH_MAX, innermost))


def test_a_value_at_the_deepest_level_is_written_and_judged() -> None:
    assert (
        canonical(nested(CANONICAL_DEPTH_MAX, 1))
        == b"[" * CANONICAL_DEPTH_MAX + b"1" + b"]" * CANONICAL_DEPTH_MAX
    )
    for refused in (math.nan, math.inf, INTEGER_MAX + 1):
        with pytest.raises(NotJsonError):
            canonical(nested(CANONICAL_DEPTH_MAX, refused))


@given(st.lists(st.integers(10**15, 10**25) | st.integers(-(10**25), -(10**15)), min_size=1))
def test_every_long_number_is_read_as_the_exact_reader_reads_it(numbers: list[int]) -> None:
    value: Any = {"list": [float(number) for number in numbers], "one": float(numbers[0])}
    stored = canonical(value)
    assert canonical(read_stored(stored)) == stored
    for number in (numbers[0], *numbers):
        raw = b'{"a":%d,"b":[%d, %d]}' % (number, number, number)
        read: Any = read_stored(raw)
        long = abs(number) > INTEGER_MAX
        assert [type(read["a"]), *map(type, read["b"])] == [float if long else int] * 3
