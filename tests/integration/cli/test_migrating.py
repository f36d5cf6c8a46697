"""`migrate` on files and databases of every released format; nothing else starts on another than its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.embedded.directory import DataDirectory, prepare
from gateway.embedded.start_lock import StartLock
from governance.adapters.migration import current, upgrade
from tests.integration.cli.support import Directory, Said
from tests.integration.migration.conftest import Place
from tests.integration.migration.released import FOLDER, load

RELEASED = sorted(path.stem.rsplit("-", 1) for path in FOLDER.glob("*.json"))


@dataclass
class Old:
    """A directory whose ledger is yet to be made, in it or in a database of its own."""

    directory: Directory
    place: Place
    settings: dict[str, str]

    def run(self, *arguments: str) -> Said:
        return self.directory.run(*arguments, stdin=b"", **self.settings)


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    directory = DataDirectory.at(tmp_path / "data", {})
    prepare(directory)
    if request.param == "sqlite":
        os.close(os.open(directory.ledger, os.O_CREAT, 0o600))
        yield Old(Directory(directory.path), Place("sqlite", directory.ledger, ""), {})
        return
    url = str(request.getfixturevalue("postgres_url"))
    yield Old(Directory(directory.path), Place("postgres", url, ""), {"INTERLOCK_LEDGER_URL": url})


def test_a_ledger_of_this_format_is_left_as_it_is(stopped: Directory) -> None:
    before = stopped.files()
    looked = stopped.run("migrate", "--check", "--json")
    assert (looked.status, looked.json["ok"], looked.json["applied"]) == (0, True, [])
    assert looked.json["found"] == looked.json["newest"]
    assert stopped.files() == before
    moved = stopped.run("migrate")
    assert (moved.status, moved.err) == (0, "")
    assert "nothing to do" in moved.out


def test_a_directory_without_a_ledger_has_nothing_to_move(tmp_path: Path) -> None:
    said = Directory(tmp_path).run("migrate")
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith("NOT_FOUND")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_database_gets_ledger_and_views_once(postgres_url: str, tmp_path: Path) -> None:
    directory = Directory(tmp_path / "none")
    looked = directory.run("migrate", "--check", "--json", INTERLOCK_LEDGER_URL=postgres_url)
    assert (looked.status, looked.json["ok"], looked.json["found"]) == (1, False, 0)
    made = directory.run("migrate", "--json", INTERLOCK_LEDGER_URL=postgres_url)
    assert (made.status, made.json["ok"]) == (0, True)
    assert made.json["applied"]
    again = directory.run("migrate", "--json", INTERLOCK_LEDGER_URL=postgres_url)
    assert (again.status, again.json["applied"]) == (0, [])


def test_every_released_format_is_moved_once(old: Old) -> None:
    newest = 0
    for kind, number in RELEASED:
        newest = max(newest, int(number)) if kind == old.place.kind else newest
    load(old.place.location, old.place.kind, 1)
    missing = [str(number) for number in range(2, newest + 1)]
    looked = old.run("migrate", "--check", "--json")
    assert (looked.status, looked.json["found"], looked.json["newest"]) == (1 if missing else 0, 1, newest)
    moved = old.run("migrate", "--json")
    assert (moved.status, moved.json["ok"], moved.json["applied"]) == (0, True, missing)
    assert old.run("migrate", "--check").status == 0


def test_nothing_starts_on_an_older_format_and_it_says_what_moves_it(old: Old) -> None:
    upgrade(old.place.location)
    old.place.set_format(0, 0)
    looked = old.run("migrate", "--check")
    assert (looked.status, looked.err) == (1, "")
    for command in (("up",), ("run", "governor"), ("verify",)):
        said = old.run(*command)
        assert (said.status, said.out) == (1, ""), command
        assert said.err.startswith("LEDGER_FORMAT: ")
        assert "`interlock migrate`" in said.err
        # What `up` had started by then, it says that it stops.
        assert set(said.err.splitlines()[1:]) <= {"stopping", "stopped"}
    assert current(old.place.location).found == 0


def test_a_format_that_only_later_programs_may_use_is_refused_in_one_line(old: Old) -> None:
    upgrade(old.place.location)
    old.place.set_format(9, 9)
    for options in ((), ("--check",), ("--json",)):
        said = old.run("migrate", *options)
        assert (said.status, said.out) == (1, "")
        assert said.err.startswith("LEDGER_FORMAT: the ledger has format 9")
        assert said.err.count("\n") == 1
    old.place.set_format(9, 1)
    assert old.run("migrate").status == 0


@pytest.mark.parametrize("old", ["sqlite"], indirect=True)
def test_a_file_is_not_moved_under_a_running_system(old: Old) -> None:
    upgrade(old.place.location)
    old.place.set_format(0, 0)
    lock = StartLock.take(old.directory.data)
    try:
        said = old.run("migrate")
    finally:
        lock.release()
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith("ALREADY_RUNNING")
    assert current(old.place.location).found == 0
