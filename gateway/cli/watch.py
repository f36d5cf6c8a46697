"""`watch`: how the system stands, again and again: tables on a terminal, a line a change, or JSON.

Reads through the stores alone and writes nothing. Whatever is away is said and looked for again.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli import board
from gateway.cli.log import log_identity, open_log
from gateway.cli.option import AsJson, Data, Tenant
from gateway.cli.output import Output, complain, standard_output
from gateway.cli.place import enter
from interlock.errors import RetryLaterError
from interlock.state import SessionName
from interlock.workspace import DEFAULT_TENANT

if TYPE_CHECKING:
    from rich.console import Console

    from gateway.glance import Glance

INTERVAL_SECONDS = 1.0
INTERVAL_SECONDS_MIN = 0.1
PAUSE_PER_COST = 5.0
"""A look that costs much is taken less often."""
WIDE = 200
"""Columns where there is no terminal to be as wide as."""
DUMB = frozenset(("dumb", "unknown"))


def watch(
    session: Annotated[str | None, typer.Option("--session", metavar="S", help="Only this session.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=INTERVAL_SECONDS_MIN, help="How often to look."),
    ] = INTERVAL_SECONDS,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """How the system stands, as it changes: phases, rates, pools, what runs, waits, or is unknown."""
    output = standard_output(as_json)
    directory = enter(data)
    name = None if session is None else SessionName(tenant, session)
    with _Looking(directory, name) as looking:
        if once:
            _show(output, looking.look(), name)
        elif not as_json and _is_terminal(output):
            _live(output, looking, interval)
        else:
            _lines(output, looking, interval)


class _Looking:
    """Looks, and opens the stores again where what was opened no longer tells the truth."""

    def __init__(self, directory: Any, name: SessionName | None) -> None:
        from gateway.glance import Counting

        self._directory, self.name = directory, name
        self._stack = ExitStack()
        self._reading: Any = None
        self._log_file: int | None = None
        self._counting = Counting()
        self.cost_seconds = 0.0

    def look(self) -> Glance:
        """One look; raises what opening and reading raise."""
        from gateway.glance import glance, stream_seq

        try:
            self._open()
            began = time.monotonic()
            relay_seq = stream_seq(self._directory)
            found = glance(self._reading, self._counting, relay_seq, self.name)
        except RetryLaterError:
            self._close()
            raise
        self.cost_seconds = time.monotonic() - began
        return found

    def _open(self) -> None:
        # The system was started or stopped meanwhile: what was opened to stand still, now moves. What was
        # never projected may be by now.
        is_stale = self._log_file != log_identity(self._directory)
        if self._reading is None or is_stale or self._reading.projection is None:
            self._close()
            self._reading, self._log_file = open_log(self._stack, self._directory)

    def _close(self) -> None:
        self._stack.close()
        self._reading = None

    def __enter__(self) -> _Looking:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def _live(output: Output, looking: _Looking, interval: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    session = None if looking.name is None else looking.name.session
    console = _console(output)
    shown: Any = board.tables(looking.look(), session, console.width)
    with Live(shown, console=console, auto_refresh=False) as live:
        while True:
            live.update(shown, refresh=True)
            output.wait(max(interval, looking.cost_seconds * PAUSE_PER_COST))
            try:
                shown = board.tables(looking.look(), session, console.width)
            except RetryLaterError as error:
                shown = Group(Text(str(error)))


def _lines(output: Output, looking: _Looking, interval: float) -> None:
    shown: Any = None
    while True:
        try:
            look = looking.look()
        except RetryLaterError as error:
            if shown is None:
                raise
            if shown != error.code:
                complain(str(error))
            shown = error.code
        else:
            if output.as_json or _what_changes(look) != shown:
                shown = _what_changes(look)
                _say(output, look, looking.name)
        output.wait(max(interval, looking.cost_seconds * PAUSE_PER_COST))


def _say(output: Output, look: Glance, name: SessionName | None) -> None:
    if output.as_json:
        output.json(_document(look, name))
    else:
        output.text(board.line(look))


def _show(output: Output, look: Glance, name: SessionName | None) -> None:
    if output.as_json:
        output.json(_document(look, name))
    else:
        console = _console(output)
        console.print(board.tables(look, None if name is None else name.session, console.width))


def _document(look: Glance, name: SessionName | None) -> dict[str, Any]:
    return board.document(look, None if name is None else name.session, name.tenant if name else "")


def _what_changes(look: Glance) -> tuple[Any, ...]:
    """What a new line is worth, the moment and the rates aside."""
    listed = (look.running, [one.head for one in look.parked], look.unknown)
    ids = tuple(tuple(head.id for head in heads) for heads in listed)
    late = look.numbers is not None and look.numbers.is_late
    return (tuple(look.phases.items()), ids, look.stopped, look.relay.state, late)


def _console(output: Output) -> Console:
    from rich.console import Console

    is_terminal = _is_terminal(output)
    return Console(
        file=output.stream,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if is_terminal else WIDE,
        force_terminal=is_terminal,
    )


def _is_terminal(output: Output) -> bool:
    return output.stream.isatty() and os.environ.get("TERM", "dumb") not in DUMB
