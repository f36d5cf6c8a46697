"""Cutting JSON text: the pieces of what is JSON are its members, and bad text never hides one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import NotJsonError
from interlock.fragment import elements, members

LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8) | st.floats(allow_nan=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)
INDENTS = st.none() | st.integers(0, 2)


@given(st.lists(VALUES, max_size=5), INDENTS, st.booleans())
def test_the_pieces_of_an_array_are_its_elements(
    value: list[Any], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert [json.loads(piece) for piece in elements(text)] == value


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), VALUES),
    INDENTS,
)
def test_the_pieces_of_an_object_are_its_members(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    assert {key: json.loads(piece) for key, piece in members(text).items()} == value


@given(st.binary(max_size=64) | st.text('[]{},:"\\ 1a', max_size=64).map(str.encode))
def test_any_text_is_cut_or_refused(text: bytes) -> None:
    for cut in (elements, members):
        try:
            pieces = cut(text)
        except NotJsonError:
            continue
        assert len(pieces) <= len(text)


@given(st.text('[]{},:"\\ 1', max_size=40))
def test_what_is_good_piece_by_piece_is_good_as_a_whole(text: str) -> None:
    try:
        values = [json.loads(piece) for piece in elements(text.encode())]
    except ValueError:
        return
    except NotJsonError:
        return
    assert json.loads(text) == values


@pytest.mark.parametrize("text", [b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}'])
def test_a_key_twice_is_refused(text: bytes) -> None:
    with pytest.raises(NotJsonError) as caught:
        members(text)
    assert caught.value.code == "JSON_DUPLICATE_KEY"


def test_what_is_no_number_is_cut_all_the_same() -> None:
    assert members(b'{"a": NaN, "b": [1, {"c": "},"}]}') == {"a": b"NaN", "b": b'[1, {"c": "},"}]'}
