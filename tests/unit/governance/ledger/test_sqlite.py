"""What only the ledger on SQLite promises: its settings, its fence against change, its refusals, its file."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from governance.adapters.sqlite_ledger.fault import is_undecided, is_untrusted, translated
from governance.adapters.sqlite_ledger.mount import file_system_of, network_file_system
from governance.adapters.sqlite_ledger.schema import OPEN, READY, TWIN
from interlock.clock import ManualClock, SystemClock
from interlock.errors import (
    LedgerClosedError,
    LedgerUnavailableError,
    NotFoundError,
    OursToFixError,
)
from interlock.event import invocation_stream
from tests.support.ledger import a_head, an_append, an_event, write
from tests.support.source import ROOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger.open(path, SystemClock(), create=True)
    yield ledger
    ledger.close()


@pytest.fixture
def intruder(ledger: SqliteLedger, path: Path) -> Iterator[sqlite3.Connection]:
    """A connection with SQLite's own defaults, on a ledger with one event."""
    write(ledger, an_append("i-1"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


# --- settings -----------------------------------------------------------------------------------------------


def test_every_connection_answers_with_the_durable_settings(ledger: SqliteLedger) -> None:
    seen: list[dict[str, str]] = []

    def ask() -> None:
        seen.append(dict(ledger.settings()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {
        "journal_mode": "wal", "synchronous": "2", "recursive_triggers": "1", "foreign_keys": "1",
        "trusted_schema": "0", "temp_store": "2", "busy_timeout": "5000",
    }  # fmt: skip
    assert len(seen) == 4
    assert all(expected.items() <= answers.items() for answers in seen)


def test_a_setting_that_does_not_hold_is_refused(path: Path, tmp_path: Path) -> None:
    SqliteLedger.open(path, SystemClock(), create=True).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN IMMEDIATE")
        # Somebody else holds the file, so the journal cannot be switched back.
        with pytest.raises(LedgerUnavailableError):
            SqliteLedger.open(path, SystemClock())


def test_the_file_and_its_lock_are_for_their_owner_only(ledger: SqliteLedger, path: Path) -> None:
    write(ledger, an_append("i-1"))
    made = sorted(path.parent.iterdir())
    assert {file.name for file in made} == {"ledger.db", "ledger.db-shm", "ledger.db-wal", "ledger.lock"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in made} == {0o600}


# --- append-only --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tool_event SET actor = 'x'",
        "DELETE FROM tool_event",
        "INSERT OR REPLACE INTO tool_event SELECT * FROM tool_event",
        """REPLACE INTO tool_event SELECT ord + 10, kind, stream, version, type, format, at_us, cause, actor,
            tenant, session, moves_state, payload, payload_sha, hash FROM tool_event""",
        "INSERT INTO tool_event SELECT * FROM tool_event WHERE true ON CONFLICT DO UPDATE SET actor = 'x'",
    ],
)
def test_an_event_is_never_changed_even_by_a_connection_of_somebody_else(
    intruder: sqlite3.Connection, statement: str
) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="events are never"):
        intruder.execute(statement)


def test_rows_that_the_ledger_refuses_leave_nothing_behind(ledger: SqliteLedger, path: Path) -> None:
    write(ledger, an_append("i-1"))
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("UPDATE head SET version = 0 WHERE id = 'i-1'")
    with pytest.raises(ValueError, match="refuses"):
        write(ledger, an_append("i-1", 0), an_append("i-2"))
    with ledger.read() as view:
        assert view.last_seq() == 1


def test_a_transaction_in_which_an_append_failed_is_not_committed_by_who_goes_on(
    ledger: SqliteLedger, path: Path
) -> None:
    write(ledger, an_append("i-1"))
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("UPDATE head SET version = 0 WHERE id = 'i-1'")

    def go_on() -> None:
        with ledger.write() as transaction:
            with pytest.raises(sqlite3.IntegrityError):
                transaction.append([an_append("i-1", 0)])
            transaction.raise_epoch()

    with pytest.raises(RuntimeError):
        go_on()
    with ledger.read() as view:
        assert view.epoch() == 1


# --- what errors mean ---------------------------------------------------------------------------------------


def an_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it went wrong")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_X"
    return error


@pytest.mark.parametrize(
    ("code", "kind", "undecided"),
    [
        (sqlite3.SQLITE_IOERR, LedgerClosedError, True),
        (sqlite3.SQLITE_IOERR_FSYNC, LedgerClosedError, True),
        (sqlite3.SQLITE_IOERR_WRITE, LedgerClosedError, True),
        (sqlite3.SQLITE_CORRUPT, LedgerClosedError, True),
        (sqlite3.SQLITE_NOTADB, LedgerClosedError, True),
        (sqlite3.SQLITE_IOERR_SHMSIZE, LedgerUnavailableError, False),
        (sqlite3.SQLITE_FULL, LedgerUnavailableError, False),
        (sqlite3.SQLITE_BUSY, LedgerUnavailableError, False),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, LedgerUnavailableError, False),
        (sqlite3.SQLITE_CANTOPEN, LedgerUnavailableError, True),
        (sqlite3.SQLITE_CONSTRAINT_TRIGGER, ValueError, False),
    ],
)
def test_every_error_says_whether_to_try_again_or_to_stop(
    code: int, kind: type[Exception], undecided: bool
) -> None:
    error = an_error(code)
    assert type(translated(error)) is kind
    assert is_untrusted(error) == (kind is LedgerClosedError)
    assert is_undecided(error) == undecided


def test_a_damaged_file_closes_the_ledger_until_it_is_opened_again(ledger: SqliteLedger, path: Path) -> None:
    write(ledger, *(an_append(f"i-{number}") for number in range(200)))
    ledger.close()
    whole = path.read_bytes()
    # Every page but the first: the schema can be read, rows cannot.
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(LedgerClosedError):
        SqliteLedger.open(path, SystemClock())
    path.write_bytes(whole)
    again = SqliteLedger.open(path, SystemClock())
    with again.read() as view:
        assert view.last_seq() == 200
    again.close()


def test_a_file_that_is_no_database_is_not_opened(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1_000)
    with pytest.raises(LedgerClosedError):
        SqliteLedger.open(path, SystemClock(), create=True)


def test_a_damaged_row_closes_what_is_open_and_a_second_use_says_so(ledger: SqliteLedger, path: Path) -> None:
    write(ledger, *(an_append(f"i-{n:03}", events=[an_event(payload=b"x" * 900)]) for n in range(200)))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    other = SqliteLedger.open(path, SystemClock())
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xff" * (path.stat().st_size - 8 * 4096))

    def read_all() -> None:
        with other.read() as view:
            view.range(0, 1_000)

    with pytest.raises(LedgerClosedError):
        read_all()
    with pytest.raises(LedgerClosedError):
        write(other, an_append("i-900"))
    other.close()


def test_a_full_file_pauses_and_recovers(ledger: SqliteLedger) -> None:
    """SQLite's own bound on pages answers as a full disk does."""
    with ledger._database.reading() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = [an_event(payload=b"x" * 20_000)]
    with pytest.raises(LedgerUnavailableError, match="FULL"):
        write(ledger, an_append("i-1", events=big))
    with ledger.read() as view:
        assert view.last_seq() == 0
    with ledger._database.reading() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    assert write(ledger, an_append("i-1", events=big)) == set()


def test_a_file_held_by_somebody_else_is_a_pause(ledger: SqliteLedger, path: Path) -> None:
    with ledger._database.reading() as connection:
        connection.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailableError, match="BUSY"):
            write(ledger, an_append("i-1"))
        intruder.execute("ROLLBACK")
    assert write(ledger, an_append("i-1")) == set()


COMMIT_BEYOND_A_LIMIT = """
import resource, signal, sys
from pathlib import Path
from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
from interlock.errors import CommitUnknownError, LedgerClosedError
from tests.support.ledger import an_append, an_event, write
ledger = SqliteLedger.open(Path(sys.argv[1]), SystemClock(), create=True)
write(ledger, an_append("i-0"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = Path(sys.argv[1] + "-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10_000, size + 10_000))
def outcome(append):
    try:
        write(ledger, append)
    except Exception as error:
        return type(error).__name__
print(outcome(an_append("i-1", events=[an_event(payload=b"x" * 20_000)])), outcome(an_append("i-2")))
"""


def test_a_commit_that_meets_an_io_error_is_unknown_and_closes_the_ledger(path: Path) -> None:
    """The disk refuses in the middle of the log: nobody can say what a restart will find there."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMMIT_BEYOND_A_LIMIT, str(path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["CommitUnknownError", "LedgerClosedError"], done.stderr
    again = SqliteLedger.open(path, SystemClock())
    with again.read() as view:
        assert view.last_seq() == 1
    again.close()


# --- opening ------------------------------------------------------------------------------------------------


def test_nothing_is_made_where_there_is_no_ledger(path: Path) -> None:
    with pytest.raises(NotFoundError):
        SqliteLedger.open(path, SystemClock())
    assert list(path.parent.iterdir()) == []


def test_opening_again_finds_the_same_ledger(ledger: SqliteLedger, path: Path) -> None:
    write(ledger, an_append("i-1"))
    again = SqliteLedger.open(path, SystemClock(), create=True)
    assert again.info == ledger.info
    with again.read() as view:
        assert view.last_seq() == 1
    again.close()


@pytest.mark.parametrize("change", ["min_reader = 2", "schema_version = 0"])
def test_a_ledger_of_another_format_is_refused(ledger: SqliteLedger, path: Path, change: str) -> None:
    name, value = change.split(" = ")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))
    with pytest.raises(OursToFixError) as caught:
        SqliteLedger.open(path, SystemClock())
    assert caught.value.code == "LEDGER_FORMAT"


def test_a_stopped_ledger_is_read_without_a_single_write(ledger: SqliteLedger, path: Path) -> None:
    write(ledger, an_append("i-1"))
    ledger.close()
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    reader = SqliteLedger.open(path, SystemClock(), read_only=True)
    with reader.read() as view:
        assert view.last_seq() == 1
    with pytest.raises(LedgerUnavailableError, match="read only"):
        write(reader, an_append("i-2"))
    reader.close()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_what_a_killed_system_left_in_its_log_is_read_without_a_write_to_file_or_log(
    ledger: SqliteLedger, path: Path, tmp_path: Path
) -> None:
    write(ledger, an_append("i-1"))
    left = tmp_path / "left"
    left.mkdir()
    for name in ("ledger.db", "ledger.db-wal"):
        (left / name).write_bytes((path.parent / name).read_bytes())
    before = {name: (left / name).read_bytes() for name in ("ledger.db", "ledger.db-wal")}
    reader = SqliteLedger.open(left / "ledger.db", SystemClock(), read_only=True)
    with reader.read() as view:
        assert view.last_seq() == 1
    reader.close()
    assert {name: (left / name).read_bytes() for name in before} == before


def test_a_running_ledger_can_be_read_beside_its_writer(ledger: SqliteLedger, path: Path) -> None:
    write(ledger, an_append("i-1"))
    reader = SqliteLedger.open(path, SystemClock(), read_only=True)
    write(ledger, an_append("i-2"))
    with reader.read() as view:
        assert view.last_seq() == 2
    reader.close()


def test_a_ledger_is_not_used_by_a_process_that_was_forked_after_it_was_opened(ledger: SqliteLedger) -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(ledger, an_append("i-1"))
        except RuntimeError:
            os.write(write_end, b"refused")
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    assert os.read(read_end, 100) == b"refused"
    os.close(read_end)


# --- where it lies ------------------------------------------------------------------------------------------

MOUNTS = """\
22 1 254:0 / / rw - ext4 /dev/root rw
40 22 0:40 / /mnt/share rw,relatime shared:1 - nfs4 host:/share rw
41 40 254:1 / /mnt/share/local rw - ext4 /dev/b rw
42 22 0:42 / /mnt/with\\040space rw - cifs //host/x rw
43 22 254:2 / /mnt/twice rw - ext4 /dev/c rw
44 22 0:44 / /mnt/twice rw - fuse.sshfs me@host: rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/mnt/share/data", "nfs4"),
        ("/mnt/share/local/data", "ext4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/with space", "cifs"),
        ("/mnt/twice", "fuse.sshfs"),
    ],
)
def test_a_folder_lies_on_the_nearest_mount_that_was_made_last(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == kind


def test_a_network_file_system_is_refused_by_name(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"40 22 0:40 / {tmp_path.resolve()} rw - nfs4 host:/share rw\n", encoding="utf-8")
    assert network_file_system(tmp_path, table) == "nfs4"
    assert network_file_system(Path("/"), table) is None
    assert network_file_system(tmp_path, tmp_path / "absent") is None


# --- cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (
            f"SELECT * FROM head WHERE {READY} AND published_us = 0 AND pool = ? ORDER BY priority",
            "head_ready",
        ),
        (f"SELECT pool FROM head WHERE {READY} AND published_us > 0 GROUP BY pool", "head_published"),
        (f"SELECT * FROM head WHERE {OPEN} AND tenant = ? AND session = ? AND stage = ?", "head_line"),
        (f"SELECT * FROM head WHERE {OPEN} AND phase = ? ORDER BY accepted_seq", "head_phase"),
        (f"SELECT id FROM head WHERE {TWIN} AND action_digest IN (?)", "head_twin"),
        ("SELECT * FROM due WHERE at_us <= ? ORDER BY at_us, kind, id", "due_moment"),
        ("SELECT ord FROM tool_event WHERE session = ? AND version = 1 ORDER BY ord", "tool_event_session"),
    ],
)
def test_every_hot_question_is_answered_by_its_index_and_without_sorting(
    intruder: sqlite3.Connection, sql: str, index: str
) -> None:
    plan = [row[3] for row in intruder.execute(f"EXPLAIN QUERY PLAN {sql}", ("",) * sql.count("?"))]
    assert index in plan[0]
    assert not [step for step in plan if "TEMP B-TREE" in step]


def test_the_log_of_many_appends_does_not_grow_without_end(ledger: SqliteLedger, path: Path) -> None:
    for number in range(60):
        write(ledger, *(an_append(f"i-{number:03}-{n:03}", head=a_head(f"i-{n}")) for n in range(60)))
    assert path.with_name("ledger.db-wal").stat().st_size < 16 * 2**20


def test_a_lost_race_reads_what_the_winner_wrote(ledger: SqliteLedger, path: Path) -> None:
    other = SqliteLedger.open(path, ManualClock())
    write(ledger, an_append("i-1"))
    assert write(other, an_append("i-1")) == {invocation_stream("i-1")}
    assert write(other, an_append("i-1", 1)) == set()
    other.close()
