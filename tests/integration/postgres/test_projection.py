"""The projection on PostgreSQL around what only a server does: restarts, crashes, many openers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from interlock.errors import AlreadyRunningError, OursToFixError, RetryLaterError
from interlock.projection import Checkpoint
from tests.conformance.projection.test_projection import RECORD, _next
from tests.support.postgres import PostgresServer, postgres_server
from workers.adapters.postgres_projection import PostgresProjection
from workers.adapters.postgres_views import FORMAT


@pytest.fixture
def projection(postgres_url: str) -> Iterator[PostgresProjection]:
    projection = PostgresProjection.open(postgres_url)
    yield projection
    projection.close()


def _store(projection: PostgresProjection, seq: int) -> Checkpoint:
    before = projection.checkpoint()
    assert projection.store(before, _next(before, seq), [replace(RECORD, version=seq)])
    return projection.checkpoint()


def test_no_commit_waits_for_the_disk_and_none_leaves_the_session_so(postgres_url: str) -> None:
    projection = PostgresProjection.open(postgres_url)
    _store(projection, 1)
    with projection._database.statements() as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    with projection._database.transaction() as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
    projection.close()


def test_many_that_open_an_empty_database_at_once_share_one_projection(postgres_url: str) -> None:
    opened: list[PostgresProjection] = []
    threads = [
        threading.Thread(target=lambda: opened.append(PostgresProjection.open(postgres_url)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 6
    assert {projection.checkpoint().epoch for projection in opened} == {1}
    for projection in opened:
        projection.close()


def test_of_two_projectors_that_store_at_once_one_does(projection: PostgresProjection) -> None:
    before = projection.checkpoint()
    barrier = threading.Barrier(4)
    stored: list[tuple[bool, int]] = []

    def store(seq: int) -> None:
        barrier.wait()
        records = [replace(RECORD, invocation_id=f"i-{n}", position=n, version=seq) for n in range(1, 300)]
        stored.append((projection.store(before, _next(before, seq), records), seq))

    threads = [threading.Thread(target=store, args=(seq,)) for seq in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [seq for won, seq in stored if won]
    assert projection.checkpoint().seq == winner
    assert {record.version for record in projection.state("s-1").records} == {winner}


def test_a_batch_is_one_transaction_that_a_crash_takes_or_leaves_whole() -> None:
    with postgres_server() as server:
        projection = PostgresProjection.open(server.url())
        for seq in range(1, 40):
            _store(projection, seq)
        server.kill()
        with pytest.raises(RetryLaterError):
            projection.checkpoint()
        server.start()
        at = projection.checkpoint()  # the same object goes on, with new connections
        assert at.seq <= 39
        [record] = projection.state("s-1").records or [None]
        assert record is None if at.seq == 0 else record is not None and record.version == at.seq
        _store(projection, 50)
        projection.close()


def test_after_an_orderly_restart_a_projection_goes_on(postgres_url: str) -> None:
    with postgres_server() as server:
        projection = PostgresProjection.open(server.url())
        at = _store(projection, 1)
        server.restart()
        with pytest.raises(RetryLaterError):  # the connection that was open is gone
            projection.checkpoint()
        assert projection.checkpoint() == at
        projection.close()


def test_tables_of_an_older_format_are_begun_anew_and_of_a_later_one_refused(postgres_url: str) -> None:
    projection = PostgresProjection.open(postgres_url)
    _store(projection, 1)
    projection.close()
    for found, opens in ((FORMAT - 1, True), (FORMAT + 1, False)):
        with psycopg.connect(postgres_url) as connection:
            connection.execute("UPDATE views.format SET format = %s", (found,))
        if opens:
            projection = PostgresProjection.open(postgres_url)
            assert projection.checkpoint().seq == 0
            projection.close()
            continue
        for read_only in (False, True):
            with pytest.raises(OursToFixError, match="LEDGER_FORMAT"):
                PostgresProjection.open(postgres_url, read_only=read_only)


def test_reading_makes_nothing_and_says_that_nothing_is_there(postgres_url: str) -> None:
    with pytest.raises(RetryLaterError, match="NOT_READY"):
        PostgresProjection.open(postgres_url, read_only=True)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT to_regnamespace('views')").fetchone() == (None,)


def test_tables_that_were_dropped_under_a_projection_are_made_again(
    projection: PostgresProjection, postgres_url: str
) -> None:
    _store(projection, 1)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("DROP SCHEMA views CASCADE")
    assert projection.checkpoint().seq == 0
    assert _store(projection, 2).seq == 2


def test_one_rebuild_at_a_time(projection: PostgresProjection, postgres_url: str) -> None:
    other = PostgresProjection.open(postgres_url)
    with projection.alone():
        with pytest.raises(AlreadyRunningError), other.alone():
            pass
        assert _store(projection, 1).seq == 1  # a projector goes on
    with other.alone():
        pass
    other.close()


def test_a_long_reading_holds_no_transaction_id(
    projection: PostgresProjection, postgres: PostgresServer, postgres_url: str
) -> None:
    with projection.frozen(), projection.alone(), psycopg.connect(postgres_url) as connection:
        held = connection.execute(
            """SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND backend_xid IS NOT NULL"""
        ).fetchone()
        assert held == (0,)
