"""Folding the log anew beside the projection: what it compares, finds and leaves behind."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path

import pytest

from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.errors import AlreadyRunningError
from interlock.event import NewEvent
from interlock.memory_stream import InMemoryEventStream
from interlock.projection import ToolProjector
from tests.support.delivery import ShownLedger
from tests.support.history import append_events, append_lives
from workers.adapters.sqlite_projection import FILE_NAME, SqliteProjection
from workers.project import StreamProjector
from workers.rebuild import LOCK_NAME, rebuild


@pytest.fixture
def ledger() -> InMemoryLedger:
    ledger = InMemoryLedger(ManualClock())
    append_lives(ledger, 20)
    unknown = NewEvent("ToolInvocationBlessed", b"{}", "submission:s", "governor")
    append_events(ledger, "i-bad", [unknown], session="s-bad")
    return ledger


@pytest.fixture
def directory(tmp_path: Path, ledger: InMemoryLedger) -> Path:
    """A stopped system's directory: the projector is three events behind."""
    projection = SqliteProjection.open(tmp_path / FILE_NAME)
    shown = ShownLedger.of(ledger)
    StreamProjector(shown, InMemoryEventStream(), projection).step()
    projection.close()
    append_lives(ledger, 3)
    return tmp_path


def _rows(directory: Path) -> list[tuple[int, int]]:
    with sqlite3.connect(directory / FILE_NAME) as connection:
        found = connection.execute("SELECT epoch, count(*) FROM projection_record GROUP BY epoch").fetchall()
    connection.close()
    return found


def test_a_rebuild_of_a_stopped_system_is_equal_and_leaves_nothing(
    ledger: InMemoryLedger, directory: Path
) -> None:
    told: list[tuple[int, int]] = []
    report = rebuild(ledger, directory, progress=lambda done, all_: told.append((done, all_)))
    assert report.equal
    assert (report.seq, report.events, report.sessions, report.stopped) == (101, 101, 4, 1)
    assert report.events_per_s > 0
    assert told[-1] == (101, 101)
    assert _rows(directory) == [(1, 20)]


def test_a_switch_makes_the_new_epoch_live(ledger: InMemoryLedger, directory: Path) -> None:
    assert rebuild(ledger, directory, switch=True).switched
    assert _rows(directory) == [(2, 20)]
    projection = SqliteProjection.open(directory / FILE_NAME)
    assert projection.checkpoint().epoch == 2
    projection.close()


def test_a_changed_row_is_named_and_mended_by_the_switch(ledger: InMemoryLedger, directory: Path) -> None:
    with sqlite3.connect(directory / FILE_NAME) as connection:
        connection.execute(
            "UPDATE projection_record SET body = replace(body, 'hello', 'bye') WHERE position = 6"
        )
    connection.close()
    report = rebuild(ledger, directory, switch=True)
    assert not report.equal
    (difference,) = report.differences
    assert difference.session == "s-1"
    assert difference.projected != difference.rebuilt
    assert rebuild(ledger, directory).equal


def test_a_lost_record_a_lost_stop_and_a_moved_checkpoint_are_named(
    ledger: InMemoryLedger, directory: Path
) -> None:
    with sqlite3.connect(directory / FILE_NAME) as connection:
        connection.execute("DELETE FROM projection_record WHERE session = 's-2'")
        connection.execute("DELETE FROM projection_stop")
        connection.execute("UPDATE projection_checkpoint SET hash = 'ff'")
    connection.close()
    report = rebuild(ledger, directory)
    assert [difference.session for difference in report.differences] == ["", "s-2", "s-bad"]


def test_a_ledger_that_went_back_is_a_difference(ledger: InMemoryLedger, directory: Path) -> None:
    report = rebuild(ShownLedger.of(ledger, shown=set(range(1, 51))), directory)
    assert not report.equal
    assert report.differences[0].session == ""


def test_what_a_killed_rebuild_left_behind_is_dropped(ledger: InMemoryLedger, directory: Path) -> None:
    projection = SqliteProjection.open(directory / FILE_NAME)
    projection.beside()
    projection.close()
    assert rebuild(ledger, directory).equal
    assert _rows(directory) == [(1, 20)]


def test_a_projection_that_never_was_is_equal_to_nothing(ledger: InMemoryLedger, tmp_path: Path) -> None:
    report = rebuild(ledger, tmp_path)
    assert (report.equal, report.seq, report.events, report.events_per_s) == (True, 0, 0, 0.0)


def test_one_rebuild_at_a_time(ledger: InMemoryLedger, directory: Path) -> None:
    held = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(AlreadyRunningError):
        rebuild(ledger, directory)
    os.close(held)


def test_views_behind_the_ledger_are_not_equal_where_a_projector_follows(
    ledger: InMemoryLedger, tmp_path: Path
) -> None:
    report = rebuild(ledger, tmp_path, patience_seconds=0.01)
    assert not report.equal
    assert (report.differences[0].session, report.seq) == ("", 0)


def test_a_file_that_was_deleted_under_a_projection_is_let_go(
    ledger: InMemoryLedger, directory: Path
) -> None:
    projection = SqliteProjection.open(directory / FILE_NAME)
    assert projection.checkpoint().seq
    for file in directory.glob(f"{FILE_NAME}*"):
        file.unlink()
    assert projection.checkpoint().seq == 0
    with ledger.read() as view:
        events = view.range(0, 10)
    assert ToolProjector(projection, ledger.info.incarnation).apply(events) is not None
    other = SqliteProjection.open(directory / FILE_NAME)
    assert other.checkpoint().seq == projection.checkpoint().seq == 10
    other.close()
    projection.close()
