"""`migrate` on a file and on an empty database: it says what it found, and makes what is missing once."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cli.support import Directory


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


def test_an_empty_database_gets_ledger_and_views_once(postgres_url: str, tmp_path: Path) -> None:
    directory = Directory(tmp_path / "none")
    looked = directory.run("migrate", "--check", "--json", INTERLOCK_LEDGER_URL=postgres_url)
    assert (looked.status, looked.json["ok"], looked.json["found"]) == (1, False, 0)
    made = directory.run("migrate", "--json", INTERLOCK_LEDGER_URL=postgres_url)
    assert (made.status, made.json["ok"]) == (0, True)
    assert made.json["applied"]
    again = directory.run("migrate", "--json", INTERLOCK_LEDGER_URL=postgres_url)
    assert (again.status, again.json["applied"]) == (0, [])
