"""What the store's errors become: nothing was decided, the answer is lost, or the rows are refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from governance.adapters.postgres_ledger import PostgresLedger
from governance.adapters.postgres_ledger.fault import translated
from interlock.clock import SystemClock
from interlock.errors import (
    CommitUnknownError,
    LedgerClosedError,
    LedgerUnavailableError,
    NotFoundError,
    OursToFixError,
    UsageError,
)
from interlock.event import invocation_stream
from interlock.fault import InjectedFaultError
from tests.integration.ledger_postgres.conftest import Plain
from tests.integration.ledger_postgres.proxy import cut_answers
from tests.support.ledger import an_append, an_event, head_of, write
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.wait import until

CUT = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'interlock-ledger' AND datname = current_database()"""

UNAVAILABLE = (
    "08006",
    "57P01",
    "53100",
    "53300",
    "53200",
    "55P03",
    "57014",
    "25006",
    "58030",
    "40001",
    "40P01",
)


@contextmanager
def opened(url: str) -> Iterator[PostgresLedger]:
    ledger = PostgresLedger.open(url, SystemClock())
    try:
        yield ledger
    finally:
        ledger.close()


def test_a_connection_cut_before_the_commit_decides_nothing(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    def write_and_cut() -> None:
        with ledger.write() as transaction:
            transaction.append([an_append("i-1")])
            beside().execute(CUT)
            transaction.epoch()

    with pytest.raises(LedgerUnavailableError):
        write_and_cut()
    assert write(ledger, an_append("i-1")) == set()


def test_connections_that_a_server_dropped_while_they_rested_are_replaced(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    with ledger.read(), ledger.read(), ledger.read():
        pass
    beside().execute(CUT)
    assert write(ledger, an_append("i-1")) == set()
    beside().execute(CUT)
    assert head_of(ledger, "i-1").version == 1


def test_a_commit_whose_answer_is_lost_is_unknown_and_may_be_there(
    ledger: PostgresLedger, postgres: PostgresServer, postgres_url: str
) -> None:
    def write_and_cut(far: PostgresLedger, cut: threading.Event) -> None:
        with far.write() as transaction:
            transaction.append([an_append("i-1")])
            transaction.due_of([])  # so that nothing is left to be written but the commit
            cut.set()

    with cut_answers(postgres, postgres_url) as (url, cut), opened(url) as far:
        with pytest.raises(CommitUnknownError):
            write_and_cut(far, cut)
        until(lambda: stands(ledger, "i-1"), 10, "the commit that nobody heard of")
        cut.clear()
        assert write(far, an_append("i-1", 1)) == set()


def stands(ledger: PostgresLedger, invocation_id: str) -> bool:
    stream = invocation_stream(invocation_id)
    with ledger.read() as view:
        return stream in view.heads([stream])


def test_a_session_ended_for_idling_before_its_commit_decided_nothing(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    def write_slowly() -> None:
        with ledger.write() as transaction:
            transaction.append([an_append("i-1")])
            transaction._cursor.execute("SET idle_in_transaction_session_timeout = '50ms'")
            until(lambda: sessions(beside()) == 0, 10, "the session's end")

    with pytest.raises(LedgerUnavailableError):
        write_slowly()
    assert not stands(ledger, "i-1")


def sessions(connection: Plain) -> object:
    row = connection.execute(
        """SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'interlock-ledger' AND state = 'idle in transaction'
        AND datname = current_database()"""
    ).fetchone()
    assert row is not None
    return row[0]


def test_the_victim_of_a_deadlock_is_told_to_try_again_at_once(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    write(ledger, an_append("i-1"), an_append("i-2"))
    crossed = threading.Barrier(2)
    raised = list[LedgerUnavailableError]()

    def cross(first: str, second: str) -> None:
        try:
            with ledger.write() as transaction:
                transaction.append([an_append(first, 1)])
                crossed.wait(timeout=30)
                transaction.append([an_append(second, 1)])
        except LedgerUnavailableError as error:
            raised.append(error)

    others = [threading.Thread(target=cross, args=pair) for pair in (("i-1", "i-2"), ("i-2", "i-1"))]
    for other in others:
        other.start()
    for other in others:
        other.join(timeout=30)
    assert [error.data["at_once"] for error in raised] == [True]


def test_rows_that_the_store_cannot_hold_are_refused_and_leave_nothing(ledger: PostgresLedger) -> None:
    for said in ("nul\0", "\ud800"):
        event = an_event()._replace(actor=said)
        with pytest.raises(ValueError):
            write(ledger, an_append("i-1", events=[event]))
    with pytest.raises(ValueError):
        write(ledger, an_append("i-1", due_us=2**63))
    assert not stands(ledger, "i-1")


def test_an_error_that_the_caller_swallows_does_not_commit_the_rest(ledger: PostgresLedger) -> None:
    def swallow() -> None:
        with ledger.write() as transaction:
            transaction.append([an_append("i-1")])
            with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
                transaction.deny("a\0", "i-1")

    with pytest.raises(LedgerUnavailableError, match="transaction is aborted"):
        swallow()
    assert not stands(ledger, "i-1")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        *((state, LedgerUnavailableError) for state in UNAVAILABLE),
        ("22021", ValueError),
        ("23505", ValueError),
        ("42P01", OursToFixError),
        ("42501", OursToFixError),
        ("XX001", LedgerClosedError),
    ],
)
def test_every_state_has_one_meaning(state: str, expected: type[Exception]) -> None:
    error = psycopg.errors.lookup(state)("said")
    judged = translated(error)
    assert type(judged) is expected
    if isinstance(judged, LedgerUnavailableError):
        assert judged.data["at_once"] is state.startswith("40")


def test_a_server_that_goes_away_and_comes_back_is_used_again() -> None:
    with postgres_server() as server, server.database() as url:
        ledger = PostgresLedger.open(url, SystemClock(), create=True)
        server.stop()
        with pytest.raises(LedgerUnavailableError):
            write(ledger, an_append("i-1"))
        with pytest.raises(LedgerUnavailableError), ledger.read():
            pass
        server.start()
        assert write(ledger, an_append("i-1")) == set()
        ledger.close()


def test_a_server_that_may_lose_commits_is_refused(
    ledger: PostgresLedger, beside: Callable[[], Plain], postgres_url: str
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    beside().execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    with pytest.raises(OursToFixError, match="synchronous_commit = off"), opened(postgres_url):
        pass
    careless = postgres_server(settings={"fsync": "off"})
    with careless as server, pytest.raises(OursToFixError, match="fsync = off"), opened(server.url()):
        pass


def test_what_is_no_ledger_is_said_to_be_none(postgres: PostgresServer, postgres_url: str) -> None:
    with pytest.raises(NotFoundError), opened(postgres_url):
        pass
    with pytest.raises(LedgerUnavailableError), opened(postgres.url("nobody")):
        pass
    with pytest.raises(LedgerUnavailableError), opened("postgresql://interlock@127.0.0.1:9/none"):
        pass
    with pytest.raises(UsageError), opened("postgresql://u@/d?nonsense=1"):
        pass


def test_a_ledger_of_another_format_is_refused(
    ledger: PostgresLedger, beside: Callable[[], Plain], postgres_url: str
) -> None:
    beside().execute("UPDATE meta SET value = '99' WHERE name = 'min_reader'")
    with pytest.raises(OursToFixError, match="format"), opened(postgres_url):
        pass


def test_a_reader_writes_nothing(ledger: PostgresLedger, postgres_url: str) -> None:
    write(ledger, an_append("i-1"))
    reader = PostgresLedger.open(postgres_url, SystemClock(), read_only=True)
    assert head_of(reader, "i-1").version == 1
    with pytest.raises(LedgerUnavailableError), reader.write():
        pass
    reader.close()


def test_a_forked_child_does_not_speak_on_its_parents_connections(ledger: PostgresLedger) -> None:
    write(ledger, an_append("i-1"))
    child = os.fork()
    if child == 0:
        try:
            write(ledger, an_append("i-2"))
        except RuntimeError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert write(ledger, an_append("i-2")) == set()


def test_many_who_make_the_tables_at_once_make_them_once(postgres_url: str) -> None:
    incarnations = set[str]()

    def make() -> None:
        ledger = PostgresLedger.open(postgres_url, SystemClock(), create=True)
        incarnations.add(ledger.info.incarnation)
        ledger.close()

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(incarnations) == 1


def test_what_the_ledger_rests_on_is_read_back(ledger: PostgresLedger) -> None:
    settings = ledger.settings()
    assert (settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"]) == ("on",) * 3
    assert settings["application_name"] == "interlock-ledger"
    assert int(settings["max_locks_per_transaction"]) > 0
    assert settings["server_version"].startswith("18")


def test_a_fault_after_the_commit_undoes_nothing(postgres_url: str) -> None:
    class After:
        def reach(self, point: str) -> None:
            if point == "ledger.after_commit":
                raise InjectedFaultError(point)

    ledger = PostgresLedger.open(postgres_url, SystemClock(), create=True, faults=After())
    with pytest.raises(InjectedFaultError):
        write(ledger, an_append("i-1"))
    assert stands(ledger, "i-1")
    ledger.close()
