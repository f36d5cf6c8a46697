"""Bounded reading: what is kept, what is counted, and what is said of it."""

from __future__ import annotations

import hashlib
import os

import pytest

from workers.supervisor.capture import Capture, Captured, text_or_bytes


def captured(content: bytes, limit_bytes: int, buffer_bytes: int = 7) -> Captured:
    out, end = os.pipe()
    os.write(end, content)
    os.close(end)
    capture = Capture(out, limit_bytes, bytearray(buffer_bytes))
    while not capture.at_end:
        capture.take()
    return capture.captured()


@pytest.mark.parametrize("limit_bytes", [0, 1, 6, 7, 8, 29, 30, 31])
def test_keeps_the_beginning_and_describes_the_whole(limit_bytes: int) -> None:
    content = bytes(range(30))
    seen = captured(content, limit_bytes)
    assert seen == Captured(content[:limit_bytes], 30, hashlib.sha256(content).hexdigest())
    assert seen.truncated == (limit_bytes < 30)


def test_an_open_pipe_with_nothing_in_it_does_not_block() -> None:
    out, end = os.pipe()
    capture = Capture(out, 10, bytearray(7))
    assert not capture.take()
    assert not capture.at_end
    os.close(end)
    assert not capture.take()
    assert capture.at_end


@pytest.mark.parametrize(
    ("content", "cut", "described"),
    [
        (b"", False, {"encoding": "utf-8", "text": ""}),
        ("ä".encode()[:1], True, {"encoding": "utf-8", "text": ""}),
        ("ä".encode()[:1], False, {"encoding": "base64", "bytes": "ww=="}),
        (b"a\xff", True, {"encoding": "base64", "bytes": "Yf8="}),
        ("a😀".encode()[:4], True, {"encoding": "utf-8", "text": "a"}),
        (b"\x1b]0;x\x07", False, {"encoding": "utf-8", "text": "\x1b]0;x\x07"}),
    ],
)
def test_text_is_text_and_anything_else_is_base64(
    content: bytes, cut: bool, described: dict[str, str]
) -> None:
    assert text_or_bytes(content, cut) == described
