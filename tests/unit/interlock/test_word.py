"""The quick bytes of a word are those of its JSON under the exact writer, and are refused where those are."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from interlock.answer import Answer
from interlock.canonical import CANONICAL_DEPTH_MAX, INTEGER_MAX, canonical
from interlock.errors import NotJsonError
from interlock.receipt import Expectation
from interlock.word import FrozenValue, Word

for module in ("answer", "contract", "event", "receipt", "request", "state"):
    importlib.import_module(f"interlock.{module}")
importlib.import_module("governance.anchor")


def words(word: type[Word] = Word) -> Iterator[type[Word]]:
    for kind in word.__subclasses__():
        if kind.__module__.startswith(("interlock.", "governance.", "workers.", "scheduler.")):
            yield kind
        yield from words(kind)


TEXT = st.text(max_size=8) | st.sampled_from(["", "\x00", "\\u0000", "\\", "ü\u2028", "\ufffd", "\ud800"])
FREE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.floats()
    | st.just(1e16)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, parts))
    if origin is tuple:
        if Ellipsis in parts:
            return st.lists(values_of(parts[0]), max_size=2).map(tuple)
        return st.tuples(*map(values_of, parts))
    if origin is Literal:
        return st.sampled_from(parts)
    if annotation is str:
        return TEXT
    if annotation is int:
        return st.integers(-INTEGER_MAX - 2, INTEGER_MAX + 2)
    if annotation in (bool, NoneType):
        return st.sampled_from([True, False] if annotation is bool else [None])
    if issubclass(annotation, Word):
        return made(annotation)
    assert issubclass(annotation, StrEnum), annotation
    return st.sampled_from(list(annotation))


def made(kind: type[Word]) -> st.SearchStrategy[Any]:
    """Words of this kind with anything in them that their types allow, unvalidated."""
    return st.fixed_dictionaries(
        {
            name: FREE if field.annotation is Any else values_of(field.annotation)
            for name, field in kind.model_fields.items()
        }
    ).map(lambda fields: kind.model_construct(**fields))


def outcome(write: Any) -> bytes | str:
    try:
        written: bytes = write()
    except NotJsonError as error:
        return error.code
    except UnicodeEncodeError:
        return "a lone surrogate in a key, which pydantic itself refuses"
    return written


KINDS = list(words())


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
@settings(max_examples=25)
@given(data=st.data())
def test_the_bytes_are_those_of_the_json_under_the_exact_writer(kind: type[Word], data: Any) -> None:
    word = data.draw(made(kind))
    written = outcome(word.to_bytes)
    assert written == outcome(lambda: canonical(word.to_json()))
    if isinstance(written, bytes):
        assert written == rfc8785.dumps(word.to_json())


def test_every_word_of_ours_has_the_quick_way() -> None:
    assert [kind.__name__ for kind in KINDS if kind.free_fields is None] == []


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
@settings(max_examples=10)
@given(data=st.data())
def test_fields_that_were_written_before_change_no_byte(kind: type[Word], data: Any) -> None:
    word = data.draw(made(kind))
    written = outcome(word.to_bytes)
    if isinstance(written, bytes):
        members = word.to_json()
        names = data.draw(st.sets(st.sampled_from(sorted(members)))) if members else ()
        assert word.to_bytes(**{name: canonical(members[name]) for name in names}) == written


def test_a_word_of_checked_fields_is_the_word_that_the_class_makes() -> None:
    said: dict[str, Any] = {"invocation_id": "i", "status": "accepted", "phase": "queued", "seq": 3}
    made, usual = Answer.of_checked(**said), Answer(**said)
    assert (made, hash(made), vars(made), made.to_bytes()) == (
        usual,
        hash(usual),
        vars(usual),
        usual.to_bytes(),
    )
    assert made.model_fields_set == usual.model_fields_set
    assert made.model_copy(update={"seq": 4}) == usual.model_copy(update={"seq": 4})
    with pytest.raises(ValidationError):
        made.seq = 4  # type: ignore[misc]  # frozen: that it raises is the point


class Doubled(Word):
    """Holds what the quick way must not be asked about."""

    share: float


class Around(Word):
    """Holds such a word."""

    inner: Doubled


@pytest.mark.parametrize("share", [1.0, 1e21, -0.0, 0.1])
def test_a_word_with_a_double_is_left_to_the_exact_writer(share: float) -> None:
    for word in (Doubled(share=share), Around(inner=Doubled(share=share))):
        assert word.to_bytes() == rfc8785.dumps(word.to_json())
    with pytest.raises(NotJsonError):
        Around(inner=Doubled(share=float("nan"))).to_bytes()


@pytest.mark.parametrize("levels", range(CANONICAL_DEPTH_MAX - 20, CANONICAL_DEPTH_MAX + 1))
def test_the_depth_of_free_json_counts_from_the_outermost_word(levels: int) -> None:
    nested: Any = 1
    for _ in range(levels):
        nested = [nested]
    word = Expectation.model_construct(pointer="", equals=nested)
    expected = outcome(lambda: canonical({"pointer": "", "equals": nested}))
    assert outcome(word.to_bytes) == expected


def test_free_json_is_known_by_its_annotation() -> None:
    class Free(Word):
        value: FrozenValue

    assert Free.free_fields == ("value",)
