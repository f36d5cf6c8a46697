"""What a command says: people's lines or JSON on standard output, and nothing more once nobody reads.

Never raises BrokenPipeError: who closed the pipe has seen enough, and the command ends without a further
step.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from gateway.cli.name import as_called
from gateway.cli.visible import visible


class ReaderGoneError(Exception):
    """Nobody reads standard output any more."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command writes, and in which form."""

    as_json: bool
    stream: TextIO

    def json(self, value: Any) -> None:
        """One JSON value on one line; in ASCII, so that no terminal or encoding can change it."""
        self._write(json.dumps(value, ensure_ascii=True, separators=(",", ":")))

    def text(self, line: str) -> None:
        """Lines for a person; the caller has made foreign text visible. Nothing with --json."""
        if not self.as_json:
            self._write(line)

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Plain columns, as wide as their widest cell; hidden characters are written out."""
        if self.as_json:
            return
        cells = [list(titles), *([visible(cell) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
        for row in cells:
            self._write(
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            )

    def facts(self, pairs: Mapping[str, object]) -> None:
        """`name  value` lines; what is None or empty is left out."""
        shown = {name: str(value) for name, value in pairs.items() if value not in (None, "", (), [])}
        width = max(map(len, shown), default=0)
        for name, value in shown.items():
            self.text(f"{name.ljust(width)}  {visible(value)}")

    def flush(self) -> None:
        """Hand over what was written."""
        try:
            self.stream.flush()
        except BrokenPipeError as error:
            raise ReaderGoneError from error

    def wait(self, seconds: float) -> None:
        """Wait this long; raises ReaderGoneError at once when the reader goes away meanwhile."""
        self.flush()
        try:
            descriptor = self.stream.fileno()
        except (OSError, ValueError):
            threading.Event().wait(seconds)
            return
        poll = select.poll()
        poll.register(descriptor, 0)
        if poll.poll(seconds * 1_000):
            raise ReaderGoneError

    def _write(self, line: str) -> None:
        try:
            self.stream.write(line + "\n")
        except BrokenPipeError as error:
            raise ReaderGoneError from error


def standard_output(as_json: bool) -> Output:
    """Standard output; what its encoding cannot hold is written as an escape rather than failing."""
    stream = sys.stdout
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process lives
    elif hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return Output(as_json, stream)


def complain(line: str) -> None:
    """One line on standard error."""
    if sys.stderr is not None:
        print(visible(as_called(line)), file=sys.stderr, flush=True)


def hint(line: str) -> None:
    """One line on standard error for a person who sits there; nothing in a script."""
    if sys.stderr is not None and sys.stderr.isatty():
        complain(line)


@contextmanager
def progress(label: str) -> Iterator[None]:
    """A running clock beside the label on a terminal, gone when the work is done; nothing elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(label, total=None)
        yield
