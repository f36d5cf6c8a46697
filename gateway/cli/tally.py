"""Counts the lines of a batch: what is certain of them, how fast it goes, and when to stop.

Sends nothing, and judges nothing but by the outcomes that it is told.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FrameType, TracebackType
from typing import Any, Self

from gateway.cli.outcome import Outcome, is_unsettled
from gateway.cli.output import Output, complain
from gateway.cli.verdict import Exit
from interlock.answer import Answer
from interlock.errors import InterlockError

SHOWN_AFTER_SECONDS = 2.0
SHOWN_EVERY_SECONDS = 0.2


class Tally:
    """What is known of the lines of one batch so far."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._began = self._shown_at = monotonic()
        self._is_shown = False
        self._last_read = 0
        self._unknown: list[int] = []
        self._counts = {"certain": 0, "not accepted": 0, "not known": 0}
        self._worst = 0
        self.is_lost = False
        """Whether a whole portion got no word from governance: the system is gone."""

    def read_until(self, number: int) -> None:
        """The number of the last line that was sent."""
        self._last_read = number

    def answered(self, numbers: Sequence[int], answers: Sequence[Answer]) -> None:
        """A portion has its answers."""
        silent = [
            (number, answer) for number, answer in zip(numbers, answers, strict=True) if is_unsettled(answer)
        ]
        unknown = [number for number, answer in silent if answer.code == "ACCEPTANCE_UNKNOWN"]
        self._unknown += unknown[: max(0, 2 - len(self._unknown))] + unknown[-1:]
        self._counts["certain"] += len(numbers) - len(silent)
        self._counts["not known"] += len(unknown)
        self._counts["not accepted"] += len(silent) - len(unknown)
        # What was refused here never went anywhere: it says nothing of the system.
        heard = any(answer.invocation_id and not is_unsettled(answer) for answer in answers)
        self.is_lost = self.is_lost or (bool(silent) and not heard)

    def said(self, outcome: Outcome) -> None:
        """One line was told."""
        self._worst = max(self._worst, outcome.status)

    def show(self) -> None:
        """How far it is, on a terminal that shows nothing else, once it takes longer."""
        now = monotonic()
        if now - self._began < SHOWN_AFTER_SECONDS or now - self._shown_at < SHOWN_EVERY_SECONDS:
            return
        self._shown_at = now
        if _is_terminal(sys.stderr) and not _is_terminal(self._output.stream):
            done = sum(self._counts.values())
            rate = done / (now - self._began)
            sys.stderr.write(f"\r\x1b[K{done:,} lines answered, {rate:,.0f} a second")
            sys.stderr.flush()
            self._is_shown = True

    def end(self, *, interrupted: bool) -> int:
        """Say what stays open, and give the exit code; raises KeyboardInterrupt where one came."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
        if not self._last_read and not interrupted:
            self._output.text("nothing was in it: no line, so nothing was proposed")
        if self._counts["not accepted"] or self._counts["not known"] or interrupted:
            complain(self._summary(interrupted))
        if interrupted:
            raise KeyboardInterrupt
        return max(self._worst, Exit.ERROR) if self.is_lost else self._worst

    def _summary(self, interrupted: bool) -> str:
        counts = self._counts
        said = f"{counts['certain']} lines have their answer"
        if counts["not accepted"]:
            said += f", {counts['not accepted']} were not accepted"
        if counts["not known"]:
            places = f"lines {self._unknown[0]} to {self._unknown[-1]}"
            said += f", of {counts['not known']} it is not known ({places})"
        if self.is_lost or interrupted:
            said += f"; nothing after line {self._last_read} was sent"
        if not counts["not known"] and not counts["not accepted"]:
            return f"interrupted: {said}"
        code = "ACCEPTANCE_UNKNOWN" if counts["not known"] else "NOT_ACCEPTED"
        return str(InterlockError(code, said))


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


class Interruption:
    """The first Ctrl-C lets what was sent be told and breaks only what waits; the second ends all at once."""

    def __init__(self) -> None:
        self._came = False
        self._may_break = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def came(self) -> bool:
        """Whether there was one."""
        return self._came

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        again, self._came = self._came, True
        if again or self._may_break:
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What may be left in the middle: the first Ctrl-C ends this block, and nothing else."""
        self._may_break = True
        try:
            yield
        except KeyboardInterrupt:
            self._came = True
        finally:
            self._may_break = False
