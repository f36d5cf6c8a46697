"""What only the stored projection does: epochs side by side, files that are damaged, old or read only."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.errors import OursToFixError, RetryLaterError
from interlock.projection import ToolProjector
from interlock.state import SessionName
from tests.support.history import append_lives
from workers.adapters.sqlite_projection import FILE_NAME, SqliteProjection
from workers.adapters.views_file import FORMAT, is_current


def _filled(path: Path, ledger: InMemoryLedger) -> SqliteProjection:
    projection = SqliteProjection.open(path)
    with ledger.read() as view:
        ToolProjector(projection, ledger.info.incarnation).apply(view.range(0, 10_000))
    return projection


@pytest.fixture
def ledger() -> InMemoryLedger:
    ledger = InMemoryLedger(ManualClock())
    append_lives(ledger, 12)
    return ledger


def test_stored_bytes_are_the_canonical_bytes_of_the_state(tmp_path: Path, ledger: InMemoryLedger) -> None:
    projection = _filled(tmp_path / FILE_NAME, ledger)
    for tenant, session in [*projection.sessions(), SessionName('t"', 'no "such" sössion')]:
        assert projection.state_bytes(session, tenant) == projection.state(session, tenant).to_bytes()
    projection.close()


def test_an_epoch_beside_is_unseen_until_it_is_made_live(tmp_path: Path, ledger: InMemoryLedger) -> None:
    live = _filled(tmp_path / FILE_NAME, ledger)
    before = live.checkpoint()
    beside = live.beside()
    assert beside.sessions() == []
    assert live.checkpoint() == before
    assert beside.make_live()
    assert (live.checkpoint().epoch, live.sessions()) == (before.epoch + 1, [])
    live.drop_dead()
    assert not live.store(before, before._replace(seq=99), [])
    live.close()


def test_what_is_not_live_is_dropped(tmp_path: Path, ledger: InMemoryLedger) -> None:
    live = _filled(tmp_path / FILE_NAME, ledger)
    beside = live.beside()
    live.drop_dead()
    with pytest.raises(RetryLaterError):
        beside.checkpoint()
    assert not beside.make_live()
    assert len(live.sessions()) == 4
    live.close()


def test_a_frozen_reading_stands_still(tmp_path: Path, ledger: InMemoryLedger) -> None:
    projection = _filled(tmp_path / FILE_NAME, ledger)
    before = projection.checkpoint()
    with projection.frozen() as frozen:
        assert projection.store(before, before._replace(seq=before.seq + 1), [])
        assert frozen.checkpoint() == before
    assert projection.checkpoint().seq == before.seq + 1
    projection.close()


def test_a_damaged_file_is_set_aside_and_the_projection_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"no database at all" * 500)
    projection = SqliteProjection.open(path)
    assert projection.checkpoint().seq == 0
    assert (tmp_path / f"{FILE_NAME}.unreadable").exists()
    projection.close()


def test_a_file_of_a_later_format_is_left_alone(tmp_path: Path, ledger: InMemoryLedger) -> None:
    path = tmp_path / FILE_NAME
    _filled(path, ledger).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    with pytest.raises(OursToFixError):
        SqliteProjection.open(path)


def test_a_file_of_an_older_format_is_not_read_and_begun_anew(tmp_path: Path, ledger: InMemoryLedger) -> None:
    path = tmp_path / FILE_NAME
    assert not is_current(path)
    _filled(path, ledger).close()
    assert is_current(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT - 1}")
    connection.close()
    assert not is_current(path)
    projection = SqliteProjection.open(path)
    assert projection.checkpoint().seq == 0
    projection.close()
    assert is_current(path)


def test_a_stopped_systems_file_is_read_without_writing(tmp_path: Path, ledger: InMemoryLedger) -> None:
    path = tmp_path / FILE_NAME
    _filled(path, ledger).close()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    projection = SqliteProjection.open(path, read_only=True)
    assert len(projection.sessions()) == 4
    with pytest.raises(RetryLaterError):
        projection.store(projection.checkpoint(), projection.checkpoint(), [])
    projection.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_file_that_is_locked_is_an_error_to_retry(tmp_path: Path, ledger: InMemoryLedger) -> None:
    path = tmp_path / FILE_NAME
    projection = _filled(path, ledger)
    with projection._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RetryLaterError):
        projection.store(projection.checkpoint(), projection.checkpoint(), [])
    other.close()
    projection.close()
