"""The frame of a long proof: what it is about, how long it takes, what it prints on its way and at its end.

A proof is a file `tests/prove/test_NAME.py` with one module-level `PROOF = Outline(…)`, all keywords and
literals, which `./run prove` reads without importing it. The frame measures nothing and judges nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Outline:
    """What a proof shows and what it takes on two quiet cores."""

    name: str
    says: str
    """One sentence."""
    count: str = ""
    """The environment variable that sets how much is done; "" where nothing is to be set."""
    usual: int = 0
    """How much without that variable."""
    minutes: float = 1.0
    """What it takes apart from the count."""
    minutes_each: float = 0.0
    """What one more of the count adds."""

    @property
    def wanted(self) -> int:
        """How much this run does; ValueError for a count that is no whole number above 0."""
        said = os.environ.get(self.count, "") if self.count else ""
        if not said:
            return self.usual
        if not said.isdecimal() or int(said) < 1:
            raise ValueError(f"{self.count} must be a whole number above 0, not {said!r}")
        return int(said)

    @property
    def estimate_minutes(self) -> float:
        """What this run should take."""
        return self.minutes + self.minutes_each * self.wanted


@dataclass(slots=True)
class Course:
    """One run of a proof."""

    outline: Outline
    seed: int
    wanted: int
    began: float = field(default_factory=time.monotonic)
    figures: dict[str, Any] = field(default_factory=dict)
    """What the last line holds; plain JSON values, units last in their names."""

    @property
    def minutes(self) -> float:
        """Since its beginning."""
        return (time.monotonic() - self.began) / 60

    def say(self, line: str) -> None:
        """Print one line, with the minute it was said in."""
        print(f"{self.minutes:6.1f} min  {line}", flush=True)

    def figure(self, name: str, value: Any) -> None:
        """Print a figure now, and keep it for the last line."""
        self.figures[name] = value
        self.say(f"{name} = {value}")


@contextmanager
def proving(outline: Outline, seed: int) -> Iterator[Course]:
    """Say what begins, and end with one line of JSON: name, seed, whether it held, minutes, every figure."""
    course = Course(outline, seed, outline.wanted)
    counted = f", {outline.count}={course.wanted}" if outline.count else ""
    print(f"\n{outline.name}: {outline.says}")
    print(f"about {outline.estimate_minutes:.0f} minutes{counted}, INTERLOCK_SEED={seed}", flush=True)
    held = False
    try:
        yield course
        held = True
    finally:
        print(json.dumps({**_head(course, held), **course.figures}), flush=True)


def _head(course: Course, held: bool) -> dict[str, Any]:
    return {
        "proof": course.outline.name,
        "held": held,
        "seed": course.seed,
        "wanted": course.wanted,
        "minutes": round(course.minutes, 2),
    }
