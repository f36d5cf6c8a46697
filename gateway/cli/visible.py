"""Makes text safe and honest on a terminal: what cannot be seen is written out, what would act is not sent.

Pure. Never shortens anything: a tail that is cut off is a tail that nobody approved.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator

from interlock.canonical import Json

SPACES_MAX = 8
"""A longer run of spaces is written out: padding can push the end of a command off the screen."""

_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# Of other categories, and drawn as nothing all the same.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_RUN_OF_SPACES = re.compile(f"(?<=[^ \n]) {{{SPACES_MAX + 1},}}")


def is_hidden(character: str) -> bool:
    """Whether a reader would not see this character as what it is."""
    category = unicodedata.category(character)
    return (
        category in _HIDDEN_CATEGORIES
        or (category == "Zs" and character != " ")
        or character in _BLANK
        or _is_selector(ord(character))
    )


def _is_selector(point: int) -> bool:
    """Variation selectors choose how the character before them is drawn, and can carry whole messages."""
    return 0xFE00 <= point <= 0xFE0F or 0xE0100 <= point <= 0xE01EF or 0x180B <= point <= 0x180F


def visible(text: str) -> str:
    """One line of the text in which every hidden character stands as its JSON escape."""
    return "".join(_escaped(character) if is_hidden(character) else character for character in text)


def coded(code: str | None, sentence: str | None) -> str | None:
    """`CODE: sentence`, with the code once, whether or not the sentence begins with it."""
    if not code:
        return sentence
    return f"{code}: {(sentence or '').removeprefix(f'{code}: ')}"


def visible_json(value: Json) -> str:
    """The value as indented JSON: exact, with hidden characters and padding as escapes."""
    # What JSON itself escapes is no longer there as a character, so every newline left is layout.
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    return "\n".join(_RUN_OF_SPACES.sub(_escaped_spaces, visible(line)) for line in lines)


def hidden_in(value: Json) -> list[str]:
    """What a reader would have overlooked in the value, one note each, in order of appearance."""
    notes: dict[str, None] = {}
    for text in _texts(value):
        for character in text:
            if is_hidden(character) and character not in "\n\t":
                notes[f"U+{ord(character):04X} {unicodedata.name(character, 'without a name')}"] = None
        for run in _RUN_OF_SPACES.findall(text):
            notes[f"{len(run)} spaces in a row"] = None
    return list(notes)


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield key
            yield from _texts(child)
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def _escaped_spaces(run: re.Match[str]) -> str:
    return "\\u0020" * len(run.group())
