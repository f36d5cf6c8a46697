"""What cannot be seen is written out, and nothing is lost on the way."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.visible import hidden_in, visible, visible_json

HIDDEN = [
    "\x00", "\x1b", "\x7f", "\x85", "\u00a0", "\u00ad", "\u034f", "\u115f", "\u200b", "\u200d", "\u2028",
    "\u202e", "\u2066", "\u2800", "\u3164", "\ufe0f", "\ufeff", "\U000e0041", "\U000e0100",
]  # fmt: skip


@pytest.mark.parametrize("character", HIDDEN, ids=lambda character: f"U+{ord(character):04X}")
def test_a_hidden_character_stands_as_its_escape(character: str) -> None:
    shown = visible(f"a{character}b")
    assert character not in shown
    assert json.loads(f'"{shown}"') == f"a{character}b"
    assert hidden_in({"x": [character]}) != []


@pytest.mark.parametrize("text", ["plain", "żółć", "漢字", "naïve (1.0)", "a b", "\U0001f600"])
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert hidden_in(text) == []


def test_padding_is_written_out_and_named() -> None:
    command = "echo ok" + " " * 392 + "; rm x"
    shown = visible_json({"command": command})
    assert " " * 20 not in shown
    assert json.loads(shown) == {"command": command}
    assert hidden_in({"command": command}) == ["392 spaces in a row"]


def test_a_line_break_is_no_secret_but_never_a_line_of_its_own() -> None:
    shown = visible_json({"text": "a\nb"})
    assert shown.split("\n") == ["{", '  "text": "a\\nb"', "}"]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_shown_arguments_are_exact(value: object) -> None:
    shown = visible_json({"value": value})  # type: ignore[dict-item] # JSON by construction
    assert json.loads(shown) == {"value": value}
    assert all(unicodedata.category(character)[0] != "C" for character in shown if character != "\n")
