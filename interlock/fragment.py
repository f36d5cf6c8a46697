"""Cuts JSON text into the raw text of its outermost members, without reading what they hold.

So that each can be read strictly on its own: one bad member is found without losing the others. A cut says
nothing about validity; text that is not JSON may be cut anywhere, and who reads the pieces strictly sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from interlock.canonical import parse_json
from interlock.errors import NotJsonError

# A string (an unterminated one reaches to the end, so this stays linear), or a character of structure.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{},:]', re.DOTALL)
_BLANK = b" \t\r\n"
_OPENING, _CLOSING, _COMMA, _COLON = b"[{", b"]}", ord(","), ord(":")


def elements(text: bytes) -> list[bytes]:
    """The raw elements of an array; raises NotJsonError (JSON_SYNTAX) where there is no such structure."""
    body = text.strip(_BLANK)
    return [body[start:end].strip(_BLANK) for start, _, end in _cuts(body, b"[", b"]")]


def members(text: bytes) -> dict[str, bytes]:
    """The raw values of an object by key; raises NotJsonError on a bad or repeated key, or lost structure."""
    body = text.strip(_BLANK)
    found: dict[str, bytes] = {}
    for start, colon, end in _cuts(body, b"{", b"}"):
        key = parse_json(body[start:colon]) if colon else None
        if not isinstance(key, str):
            raise NotJsonError("JSON_SYNTAX", "a member of an object has no key")
        if key in found:
            raise NotJsonError("JSON_DUPLICATE_KEY", f"key {key[:64]!a} twice in one object")
        found[key] = body[colon + 1 : end].strip(_BLANK)
    return found


def _cuts(body: bytes, opening: bytes, closing: bytes) -> Iterator[tuple[int, int, int]]:
    """Start, first colon (0 for none) and end of each outermost member of `body`."""
    if not (len(body) >= 2 and body.startswith(opening) and body.endswith(closing)):
        raise NotJsonError("JSON_SYNTAX", f"no {'array' if opening == b'[' else 'object'}")
    if not body[1:-1].strip(_BLANK):
        return
    depth, start, colon = 0, 1, 0
    for match in _TOKEN.finditer(body):
        place = match.start()
        mark = body[place]
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
            if depth == 0 and place != len(body) - 1:
                raise NotJsonError("JSON_SYNTAX", "more text after the value", place + 1)
        elif depth == 1 and mark == _COMMA:
            yield start, colon, place
            start, colon = place + 1, 0
        elif depth == 1 and mark == _COLON and not colon:
            colon = place
    if depth:
        raise NotJsonError("JSON_SYNTAX", "brackets do not match")
    yield start, colon, len(body) - 1
