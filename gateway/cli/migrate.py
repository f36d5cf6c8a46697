"""`migrate`: brings the ledger to the format of this program, or says whether it has to be.

On a database it also makes what is not there yet, as the account that will own it. It never reads an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.option import AsJson, Data
from gateway.cli.output import standard_output
from gateway.cli.place import enter, named_directory
from gateway.cli.verdict import Exit
from interlock.errors import AlreadyRunningError

if TYPE_CHECKING:
    from gateway.embedded.directory import DataDirectory
    from governance.adapters.migration import FormatReport


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Only look; 1 where there is something to do.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> int:
    """Bring the ledger to this program's format; what is there already stays as it is."""
    output = standard_output(as_json)
    directory = named_directory(data)
    if directory.path.exists() or not directory.ledger_server:
        directory = enter(data)
    report = _migrated(directory, check=check)
    if as_json:
        output.json(
            {
                "ok": report.is_current,
                "found": report.found,
                "newest": report.newest,
                "min_reader": report.min_reader,
                "applied": list(report.applied),
            }
        )
    else:
        output.text(_sentence(report))
    return Exit.OK if report.is_current else Exit.ERROR


def _migrated(directory: DataDirectory, *, check: bool) -> FormatReport:
    from gateway.embedded.ledger_note import server_of
    from governance.adapters.migration import current, migrate

    server = server_of(directory)
    if server:
        report = migrate(server, check=check)
        if not check:
            _make_views(server)
        return report
    return current(directory.ledger) if check else _migrated_file(directory)


def _migrated_file(directory: DataDirectory) -> FormatReport:
    """A file's processes know one format each: none runs while it is moved, and none starts."""
    from gateway.embedded.start_lock import StartLock
    from gateway.wiring import broker_answers
    from governance.adapters.migration import current, migrate

    report = current(directory.ledger)
    if report.is_current:
        return report
    lock = StartLock.take(directory)
    try:
        if broker_answers(directory):  # of roles that were started one by one
            raise AlreadyRunningError(str(directory.path))
        return migrate(directory.ledger)
    finally:
        lock.release()


def _make_views(server: str) -> None:
    from workers.adapters.postgres_projection import PostgresProjection

    PostgresProjection.open(server).close()


def _sentence(report: FormatReport) -> str:
    if report.applied:
        return f"format {report.found}; reached by the steps {', '.join(report.applied)}"
    if report.is_current:
        return f"format {report.found}; nothing to do"
    return f"format {report.found}, and this program's is {report.newest}: run `interlock migrate`"
