"""Data directories whose ledger was filled through governance, and the command line run as a process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.embedded.apart import system_apart
from gateway.embedded.directory import DataDirectory
from gateway.store import open_ledger, open_projection
from governance.catalogue import add_tools, builtin_tools
from interlock.projection import ToolProjector
from interlock.tier import SessionMode
from tests.support.commanding import run_command
from tests.support.court import Court
from tests.support.source import ROOT
from tests.support.store import give_places, store_settings


@dataclass(frozen=True)
class Said:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines on standard output."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Directory:
    """A stopped system's directory: parked, refused, cancelled and granted invocations, folded into views."""

    path: Path
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> DataDirectory:
        return DataDirectory.at(self.path)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "gateway.cli.main", *arguments, "--data", str(self.path)]

    def run(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Said:
        """Run one command to its end."""
        done = run_command(
            [*arguments, "--data", str(self.path)], stdin=stdin, environment={**os.environ, **environment}
        )
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    def files(self) -> dict[str, tuple[int, int]]:
        """Every file with its size and moment of change: what a reading command must leave alone."""
        return {
            str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(self.path.rglob("*"))
        }


def fill(directory: Directory) -> None:
    """Let governance record what the commands are to show."""
    ledger = open_ledger(directory.data)
    try:
        court = Court()
        court.ledger = ledger
        add_tools(ledger, [tool for tool in builtin_tools() if tool.name == "shell.run"], added_by="test")
        court.build()
        court.approver()
        court.open("s", SessionMode.EDIT)
        directory.ids = _submit(court)
    finally:
        ledger.close()
    project(directory)


def _submit(court: Court) -> dict[str, str]:
    answers = {
        "granted": court.say("note", {"text": "hello"}),
        "refused": court.say("note", {"txt": "hello"}, stage="b"),
        "parked": court.say("pay", {"amount": 5}, stage="c"),
        "hidden": court.say("shell.run", {"argv": ["rm", "-rf", "/home\u202e txt.etadpu"]}, stage="d"),
        "denied": court.say("pay", {"amount": 6}, stage="e"),
        "cancelled": court.say("pay", {"amount": 7}, stage="f"),
        "secret": court.say("login", {"user": "u", "password": "t0ken-1"}, stage="g"),
    }
    ids = {name: str(answer.invocation_id) for name, answer in answers.items()}
    assert court.cast(court.vote_of(ids["denied"], "deny", reason="no")) is None
    court.review(ids["denied"])
    court.cancel(ids["cancelled"])
    return ids


def project(directory: Directory) -> None:
    """Fold the ledger into the views."""
    ledger = open_ledger(directory.data)
    projection = open_projection(directory.data)
    try:
        give_places(ledger)
        with ledger.read() as view:
            events = view.range(0, 10_000)
        ToolProjector(projection, ledger.info.incarnation).apply(events)
    finally:
        projection.close()
        ledger.close()


@contextmanager
def running_on(directory: Directory) -> Iterator[None]:
    """The whole system on this directory, as `interlock up` runs it, until the end of the block."""
    # What was filled beforehand says where it lies.
    made = directory.data.layout.exists()
    new: AbstractContextManager[dict[str, str]] = nullcontext({}) if made else store_settings()
    with (
        new as store,
        system_apart(
            directory.data, module="gateway.cli.main", environment={**os.environ, **store}, folder=ROOT
        ),
    ):
        yield
