"""Numbered lines of a file: one at a time, none held that is too long, each by its own number."""

from __future__ import annotations

import io

import pytest

from gateway.cli.file import numbered_lines
from interlock.errors import NotJsonError


def read(data: bytes, most: int = 10) -> list[tuple[int, bytes | str]]:
    return [
        (number, line.code if isinstance(line, NotJsonError) else line)
        for number, line in numbered_lines(io.BytesIO(data), most)
    ]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n\r\n \n", []),
        (b"{}", [(1, b"{}")]),
        (b"{}\r\n\n{}\n", [(1, b"{}\r\n"), (3, b"{}\n")]),
        (b"\xef\xbb\xbf{}\n{}", [(1, "JSON_ENCODING"), (2, b"{}")]),
        (b"{}\n\xef\xbb\xbf{}", [(1, b"{}\n"), (2, b"\xef\xbb\xbf{}")]),
        (b"0123456789\n{}", [(1, b"0123456789\n"), (2, b"{}")]),
        (b"01234567890\n{}", [(1, "JSON_SIZE"), (2, b"{}")]),
        (b"0" * 3_000_000 + b"\n{}", [(1, "JSON_SIZE"), (2, b"{}")]),
        (b"0" * 3_000_000, [(1, "JSON_SIZE")]),
        (b"\x00\n", [(1, b"\x00\n")]),
    ],
)
def test_each_line_has_its_number(data: bytes, lines: list[tuple[int, bytes | str]]) -> None:
    assert read(data) == lines
