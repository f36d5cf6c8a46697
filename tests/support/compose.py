"""Reads docker-compose.yml strictly: the few forms of YAML that it is written in. It refuses all others."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.source import ROOT

FILE = ROOT / "docker-compose.yml"
PART = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^",\[\]{}]+?)\s*(?:,|$)')
KEY = re.compile(r"([A-Za-z_<][\w<-]*):(?: (.*))?")
REFUSED = ("&", "*", "|", ">", "!", "%", "@", "`", "'", "?", "- ")
"""With these begin forms that are not read here."""


def compose_file() -> dict[str, Any]:
    """The whole file, with every anchor and merge resolved."""
    lines = [
        (len(line) - len(line.lstrip(" ")), line.strip())
        for line in FILE.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    return _Reader(lines).block(0)


class _Reader:
    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._lines, self._at = lines, 0
        self._anchors: dict[str, Any] = {}

    def block(self, indent: int) -> dict[str, Any]:
        """The mapping at this depth, from the line that is next."""
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while self._at < len(self._lines) and self._lines[self._at][0] == indent:
            key, said = self._entry()
            assert key not in found, f"{key} stands twice"
            if key == "<<":
                merged = self._anchors[said.removeprefix("*")]
            else:
                found[key] = self._value(said, indent)
        assert self._at == len(self._lines) or self._lines[self._at][0] < indent, self._lines[self._at]
        return {**merged, **found}

    def _entry(self) -> tuple[str, str]:
        line = self._lines[self._at][1]
        match = KEY.fullmatch(line)
        assert match, line
        self._at += 1
        return match[1], match[2] or ""

    def _value(self, said: str, indent: int) -> Any:
        if said and not said.startswith("&"):
            return _inline(said)
        deeper = self._lines[self._at][0] if self._at < len(self._lines) else 0
        value = self.block(deeper) if deeper > indent else None
        if said:
            self._anchors[said[1:]] = value
        return value


def _inline(said: str) -> Any:
    if said.startswith("[") and said.endswith("]"):
        return [_scalar(part) for part in _parts(said[1:-1])]
    if said.startswith("{") and said.endswith("}"):
        return {key: _scalar(value) for key, value in (part.split(": ", 1) for part in _parts(said[1:-1]))}
    return _scalar(said)


def _parts(said: str) -> list[str]:
    found = PART.findall(said)
    assert re.sub(r"[\s,]", "", "".join(found)) == re.sub(r"[\s,]", "", said), said
    return list(found)


def _scalar(said: str) -> str:
    if said.startswith('"'):
        return str(json.loads(said))
    assert not re.search(r": | #|[\[\]{}]", said), said
    assert not said.startswith(REFUSED), said
    return said
