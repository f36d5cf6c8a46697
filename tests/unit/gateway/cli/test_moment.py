"""Moments and spans as people read them."""

from __future__ import annotations

import pytest

from gateway.cli.moment import iso, iso_or_none, span


def test_a_moment_is_utc_to_the_millisecond() -> None:
    assert iso(1_700_000_000_123_456) == "2023-11-14T22:13:20.123Z"
    assert iso_or_none(None) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0.9, "0 s"), (59, "59 s"), (125, "2 min 5 s"), (3_600, "1 h"), (90_061, "1 d 1 h")],
)
def test_a_span_is_told_in_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
