"""Places are sealed, opened and masked once each, also where one stands below another."""

from __future__ import annotations

from typing import Any

import pytest

from governance.adapters.aes_sealer import AesSealer
from governance.sensitive import SEALED, masked_arguments, opened_arguments, sealed_arguments

SEALER = AesSealer(bytes(32))
TRUE: dict[str, Any] = {"a": {"b": "x", "c": ["y", {"d": 1}]}, "a2": "z", "e/~": None}


@pytest.mark.parametrize(
    "pointers",
    [
        ("/a", "/a/b"),
        ("/a/b", "/a"),
        ("", "/a"),
        ("/a/c/1/d", "/a/c/0"),
        ("/e~1~0", "/a2"),
        ("/a", "/none/at"),
    ],
)
def test_what_was_sealed_opens_to_the_same(pointers: tuple[str, ...]) -> None:
    stored = sealed_arguments(TRUE, pointers, SEALER, "i")
    assert opened_arguments(stored, pointers, SEALER, "i") == TRUE


def test_what_lies_below_a_sealed_place_is_part_of_it() -> None:
    stored = sealed_arguments(TRUE, ("/a", "/a/b"), SEALER, "i")
    assert opened_arguments(stored, ("/a",), SEALER, "i") == TRUE
    assert masked_arguments(stored, ("/a", "/a/b")) == {"a": "[masked]", "a2": "z", "e/~": None}


def test_arguments_sealed_as_one_are_shown_as_an_object() -> None:
    assert masked_arguments(sealed_arguments(TRUE, ("",), SEALER, "i"), ("",)) == {SEALED: "[masked]"}


@pytest.mark.parametrize("there", ["x", 1, None, [], {}, {SEALED: 1}, {SEALED: "!"}, {SEALED: "AAAA"}])
def test_what_is_no_seal_is_told_by_value_error(there: Any) -> None:
    with pytest.raises(ValueError):
        opened_arguments({"a": there}, ("/a",), SEALER, "i")


def test_a_seal_opens_only_at_its_own_place_and_invocation() -> None:
    stored = sealed_arguments({"a": "x", "b": "x"}, ("/a", "/b"), SEALER, "i")
    with pytest.raises(ValueError, match="belongs elsewhere"):
        opened_arguments({"a": stored["b"]}, ("/a",), SEALER, "i")
    with pytest.raises(ValueError, match="belongs elsewhere"):
        opened_arguments(stored, ("/a", "/b"), SEALER, "j")
