"""Every released format moves forward to the declared schema, whole, whoever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from governance.adapters.migration import current, migrate, upgrade
from governance.adapters.migration.chain import steps_after
from governance.adapters.migration.store import PostgresStore, SqliteStore
from governance.adapters.postgres_ledger import schema as postgres_schema
from governance.adapters.sqlite_ledger import schema as sqlite_schema
from governance.verify import verify
from interlock.adapters.ed25519 import Ed25519KeyRing
from interlock.clock import ManualClock
from interlock.errors import NotFoundError, OursToFixError
from tests.integration.migration.conftest import Place, fill, sequence
from tests.integration.migration.released import FOLDER, load
from tests.support.installation import Installation
from tests.support.wait import until

ROOT = Path(__file__).parents[3]
STEP = '''
"""A step of this test."""

from alembic import op

from governance.adapters.migration.statement import add_index, run

revision = "{revision}"
down_revision = "{before}"
MIN_READER = 1
IN_TRANSACTION = {in_transaction}


def upgrade():
    {body}
'''
WAIT = 'open({0!r}, "w").close(); import threading; threading.Event().wait()'
UPGRADE = """
import json, sys
from pathlib import Path
from governance.adapters.migration import upgrade
where, beside = json.loads(sys.argv[1])
upgrade(Path(where) if where.startswith("/") else where, beside=[Path(beside)])
"""
OPEN = """
import sys
from pathlib import Path
from interlock.clock import SystemClock
from governance.adapters.migration import migrate
where = sys.argv[1]
if where.startswith("/"):
    from governance.adapters.sqlite_ledger import SqliteLedger
    SqliteLedger.open(Path(where), SystemClock()).close()
    assert migrate(Path(where), check=True).is_current
else:
    from governance.adapters.postgres_ledger import PostgresLedger
    PostgresLedger.open(where, SystemClock()).close()
    assert migrate(where, check=True).is_current
print("alembic" in sys.modules)
"""


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """A folder for steps of the test's own."""
    folder = tmp_path / "steps"
    folder.mkdir()
    return folder


def _write_step(folder: Path, revision: int, body: str, *, in_transaction: bool = True) -> Path:
    path = folder / f"step_{revision}.py"
    path.write_text(
        STEP.format(revision=revision, before=revision - 1, in_transaction=in_transaction, body=body),
        encoding="utf-8",
    )
    return path


def _require_whole(place: Place, made: Installation) -> None:
    """Opened afresh, it is proven, holds what was put in, and takes more."""
    made.ledger.close()
    made.ledger = ledger = place.open()
    made.run("i-later")
    sequence(ledger)
    report = made.verify(ledger.records())
    assert report.ok, report.faults
    assert report.events == 21
    ledger.close()


def test_an_empty_place_gets_the_declared_schema(place: Place) -> None:
    newest = (sqlite_schema if place.kind == "sqlite" else postgres_schema).SCHEMA_VERSION
    assert upgrade(place.location) == [str(number) for number in range(1, newest + 1)]
    place.open(place.beside, create=True).close()
    assert place.catalogue() == place.catalogue(place.beside)
    assert current(place.location) == current(place.beside)
    assert upgrade(place.location) == []


def test_the_newest_step_is_the_format_that_the_program_declares() -> None:
    for store, schema in ((SqliteStore, sqlite_schema), (PostgresStore, postgres_schema)):
        numbers = [int(step.revision) for step in steps_after(0, store.versions)]
        assert numbers == list(range(1, schema.SCHEMA_VERSION + 1))


@pytest.mark.parametrize("released", [1])
def test_a_ledger_of_every_released_format_is_proven_and_identical_after_its_upgrade(
    place: Place, released: int
) -> None:
    keys = load(place.location, place.kind, released)
    assert current(place.location).found == released
    report = migrate(place.location)
    assert report.is_current
    assert report.applied == tuple(str(number) for number in range(released + 1, report.newest + 1))
    place.open(place.beside, create=True).close()
    assert place.catalogue() == place.catalogue(place.beside)
    ledger = place.open()
    made = Installation(ledger, ManualClock())
    made.request("i-later")  # and it takes more
    sequence(ledger)
    proof = verify(ledger.records(), [], keys, Ed25519KeyRing)
    assert proof.ok, proof.faults
    assert (proof.events, proof.seq) == (18, 18)
    ledger.close()


def test_every_format_up_to_the_declared_one_was_kept() -> None:
    for kind, schema in (("sqlite", sqlite_schema), ("postgres", postgres_schema)):
        kept = {path.name for path in FOLDER.glob(f"{kind}-*.json")}
        assert kept == {f"{kind}-{number}.json" for number in range(1, schema.SCHEMA_VERSION + 1)}


def test_a_further_step_moves_a_full_ledger_forward(place: Place, steps: Path) -> None:
    upgrade(place.location)
    made = fill(place)
    _write_step(steps, 2, 'run(["CREATE TABLE added (n INTEGER)", "CREATE INDEX head_tool ON head (tool)"])')
    assert upgrade(place.location, beside=[steps]) == ["2"]
    assert {"added", "head_tool"} <= place.names()
    assert current(place.location)[:3] == (2, 1, 1)
    _require_whole(place, made)
    assert upgrade(place.location, beside=[steps]) == []


def test_looking_changes_nothing(place: Place) -> None:
    report = migrate(place.location, check=True)
    assert (report.found, report.is_current, report.applied) == (0, False, ())
    assert place.names() == set()
    assert migrate(place.location).applied == ("1",)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for ask in (current, upgrade):
        with pytest.raises(NotFoundError):
            ask(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_only_later_programs_may_use_is_refused(place: Place) -> None:
    upgrade(place.location)
    place.set_format(9, 9)
    for ask in (current, upgrade, migrate):
        with pytest.raises(OursToFixError) as refused:
            ask(place.location)
        assert refused.value.code == "LEDGER_FORMAT"
    with pytest.raises(OursToFixError, match="LEDGER_FORMAT"):
        place.open()
    place.set_format(9, 1)  # a later one that still lets this program read and write
    assert upgrade(place.location) == []
    place.open().close()


def test_a_step_that_fails_leaves_nothing(place: Place, steps: Path) -> None:
    upgrade(place.location)
    before = place.catalogue()
    _write_step(steps, 2, 'run(["CREATE TABLE added (n INTEGER)"]); raise ValueError("in between")')
    with pytest.raises(ValueError, match="in between"):
        upgrade(place.location, beside=[steps])
    assert place.catalogue() == before
    assert current(place.location).found == 1


def test_an_upgrade_that_was_killed_is_continued(place: Place, steps: Path, tmp_path: Path) -> None:
    upgrade(place.location)
    made = fill(place)
    _write_step(steps, 2, 'run(["CREATE TABLE second (n INTEGER)"])')
    mark = tmp_path / "reached"
    last = _write_step(steps, 3, f'run(["CREATE TABLE third (n INTEGER)"]); {WAIT.format(str(mark))}')
    with _upgrading(place, steps) as process:
        until(lambda: mark.exists() or process.poll() is not None, 20, "the third step is half done")
        process.kill()
        assert process.wait() == -signal.SIGKILL
    until(lambda: current(place.location).found == 2, 10, "the half step is rolled back")
    assert "third" not in place.names()
    last.unlink()
    _write_step(steps, 3, 'run(["CREATE TABLE third (n INTEGER)"])')
    assert upgrade(place.location, beside=[steps]) == ["3"]
    assert {"second", "third"} <= place.names()
    _require_whole(place, made)


def test_of_two_that_upgrade_at_once_each_step_is_taken_by_one(place: Place, steps: Path) -> None:
    upgrade(place.location)
    for number in (2, 3, 4):
        _write_step(steps, number, f'run(["CREATE TABLE t{number} (n INTEGER)"])')
    taken: list[str] = []
    threads = [
        threading.Thread(target=lambda: taken.extend(upgrade(place.location, beside=[steps]))) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == ["2", "3", "4"]


def test_opening_a_ledger_and_looking_at_its_format_import_no_migration_tool(place: Place) -> None:
    upgrade(place.location)
    said = subprocess.run(
        [sys.executable, "-c", OPEN, str(place.location)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "False\n"


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_an_index_is_made_while_others_write(place: Place, steps: Path) -> None:
    upgrade(place.location)
    made = fill(place)
    _write_step(steps, 2, 'add_index("head_tool", "ON head (tool)")', in_transaction=False)
    done = threading.Event()

    def run() -> None:
        upgrade(place.location, beside=[steps])
        done.set()

    with psycopg.connect(str(place.location)) as writing:
        writing.execute("UPDATE head SET tool = tool")
        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: "head_tool" in place.names(), 20, "the index is being made")
        made.run("i-meanwhile")  # a plain CREATE INDEX would hold this up
        assert not done.is_set()
    thread.join()
    made.ledger.close()
    assert done.is_set()
    assert {row[1] for row in place.catalogue() if "INDEX head_tool" in row[0]} == {"True"}


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_an_index_whose_making_was_killed_is_made_again(place: Place, steps: Path) -> None:
    upgrade(place.location)
    _write_step(steps, 2, 'add_index("head_tool", "ON head (tool)")', in_transaction=False)
    url = str(place.location)
    with psycopg.connect(url) as reading, psycopg.connect(url, autocommit=True) as watching:
        reading.execute("INSERT INTO denial VALUES ('a', 'b')")
        reading.execute("LOCK head IN ROW EXCLUSIVE MODE")
        with _upgrading(place, steps) as process:
            until(lambda: "head_tool" in place.names(), 20, "the index is being made")
            process.kill()
            process.wait()
        watching.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'interlock-migrate'"""
        )
    assert "head_tool" in place.names()
    assert current(place.location).found == 1
    assert upgrade(place.location, beside=[steps]) == ["2"]
    assert {row[1] for row in place.catalogue() if "INDEX head_tool" in row[0]} == {"True"}


@contextmanager
def _upgrading(place: Place, steps: Path) -> Iterator[subprocess.Popen[bytes]]:
    said = json.dumps([str(place.location), str(steps)])
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen([sys.executable, "-c", UPGRADE, said], cwd=ROOT, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()
