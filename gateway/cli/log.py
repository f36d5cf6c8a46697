"""`log`: the events of the ledger as JSON lines, in their order, and as they come.

It follows sequence numbers, never times, so nothing that commits late is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from gateway.cli.moment import iso
from gateway.cli.option import AsJson, Data, Tenant
from gateway.cli.output import Output, standard_output
from gateway.cli.place import enter
from gateway.cli.visible import visible
from interlock.errors import NotFoundError
from interlock.state import SessionName
from interlock.workspace import DEFAULT_TENANT

PAGE = 500
FOLLOW_SECONDS = 0.05


def log(
    session: Annotated[
        str | None, typer.Option("--session", metavar="S", help="Events of this session.")
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as events come.")] = False,
    after: Annotated[
        int, typer.Option("--after", metavar="SEQ", min=0, help="Begin behind this number.")
    ] = 0,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Events as JSON lines, one each, with or without --json."""
    del as_json
    output = standard_output(True)
    directory = enter(data)
    name = None if session is None else SessionName(tenant, session)
    if name is not None and not follow:
        _require_session(directory, name)
    for event in _events(directory, name, after, output if follow else None):
        output.json(event_line(event))


def _require_session(directory: Any, name: SessionName) -> None:
    from gateway.reading import open_reading
    from governance.session import find_session

    with open_reading(directory) as reading, reading.ledger.read() as view:
        known = find_session(view, *name) or view.session_events(name.session, name.tenant, limit=1)
    if not known:
        raise NotFoundError("session", visible(str(name))[:100])


def event_line(event: Any) -> dict[str, Any]:
    """One event as it is printed; sensitive values are masked."""
    from gateway.story import shown_body

    line = event._asdict()
    line["at"] = iso(event.at_us)
    line["payload"] = shown_body(event)
    return dict(line)


def _events(directory: Any, name: SessionName | None, after: int, following: Output | None) -> Iterator[Any]:
    with ExitStack() as stack:
        reading, log_file = open_log(stack, directory)
        while True:
            page = _page(reading, name, after)
            yield from page
            after = page[-1].seq if page else after
            if len(page) == PAGE:
                continue
            if following is None:
                return
            following.wait(FOLLOW_SECONDS)
            if log_file != log_identity(directory):
                # The system was started or stopped meanwhile: what was opened to stand still, now moves.
                stack.close()
                reading, log_file = open_log(stack, directory)


def _page(reading: Any, name: SessionName | None, after: int) -> list[Any]:
    with reading.ledger.read() as view:
        if name is None:
            return list(view.range(after, PAGE))
        return list(view.session_events(name.session, name.tenant, after_seq=after, limit=PAGE))


def open_log(stack: ExitStack, directory: Any) -> tuple[Any, int | None]:
    """The open stores, closed with the stack, and which log lay beside the ledger just before."""
    from gateway.reading import open_reading

    log_file = log_identity(directory)
    return stack.enter_context(open_reading(directory)), log_file


def log_identity(directory: Any) -> int | None:
    """Which write-ahead log lies beside the ledger; None while nobody has it open, or it is no file here."""
    path = directory.ledger.with_name(directory.ledger.name + "-wal")
    try:
        return int(path.stat().st_ino)
    except FileNotFoundError:
        return None
