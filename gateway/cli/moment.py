"""Moments and durations as people read them. Pure."""

from __future__ import annotations

from interlock.clock import moment


def iso(at_us: int) -> str:
    """A stored moment in UTC, to the millisecond."""
    return moment(at_us).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(at_us: int | None) -> str | None:
    """The same; None for what has not happened."""
    return None if at_us is None else iso(at_us)


def span(seconds: float) -> str:
    """A duration in its two greatest units, rounded down: `3 d 4 h`, `2 min 5 s`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size or (name == "s" and not parts):
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts[:2])
