"""Reading a directory: never behind the ledger, equal to the fold, and awake as soon as something ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from gateway.embedded.directory import DataDirectory, prepare
from gateway.embedded.ledger_note import server_of
from gateway.reading import LedgerOutcomes, open_reading
from gateway.refold import refold
from gateway.replay import replay
from gateway.store import open_ledger
from governance.ledger import head_with
from interlock.errors import NotFoundError
from interlock.identifier import new_id
from interlock.receipt import Success
from interlock.reduce import fold
from tests.integration.cli.support import Directory, project
from tests.support.history import append_events, append_lives, life
from tests.support.store import give_places, stored


@pytest.fixture
def lived(tmp_path: Path) -> Iterator[Directory]:
    """A ledger with 40 whole lives in four sessions, all of them projected."""
    with stored(tmp_path / "data") as data:
        directory = Directory(data.path)
        with closing(open_ledger(data)) as ledger:
            append_lives(ledger, 40)
        project(directory)
        yield directory


def lose_views(directory: DataDirectory) -> None:
    """Take the views away, as somebody may who wants them made anew."""
    url = server_of(directory)
    if not url:
        directory.views.unlink()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA views CASCADE")


def append_more(directory: Directory, invocation_id: str, *, events: int = 5, version: int = 0) -> None:
    told = life(invocation_id)[version : version + events]
    with closing(open_ledger(directory.data)) as ledger:
        append_events(ledger, invocation_id, told, version=version)
        give_places(ledger)


def test_the_state_holds_what_the_projection_does_not_have_yet(lived: Directory) -> None:
    new, half = new_id(), new_id()
    append_more(lived, new)
    append_more(lived, half, events=2)
    with open_reading(lived.data) as reading, reading.ledger.read() as view:
        seq, state = reading.state("s-1")
        whole = fold("s-1", view.session_events("s-1"))
        assert seq == view.last_seq()
    assert state.to_bytes() == whole.to_bytes()
    assert [record.invocation_id for record in state.records[-2:]] == [new, half]


def test_a_replay_answers_from_receipts_and_compares_where_the_projection_stands(lived: Directory) -> None:
    append_more(lived, new_id())
    with open_reading(lived.data) as reading:
        replayed = replay(reading, "s-1")
    assert replayed.is_equal is True
    assert replayed.projected_seq == 200
    assert len(replayed.answers) == 11
    results = [answered.result for answered in replayed.answers]
    assert all(isinstance(result, Success) and result.output["text"] == "hello" for result in results)


def test_without_views_there_is_state_and_replay_all_the_same(lived: Directory) -> None:
    lose_views(lived.data)
    with open_reading(lived.data) as reading:
        assert len(reading.state("s-1")[1].records) == 10
        replayed = replay(reading, "s-1")
        assert (replayed.is_equal, len(replayed.answers)) == (None, 10)
        report = refold(reading)
        assert (report.equal, report.differences[0].projected) == (False, "missing")


def test_a_refold_compares_every_session(lived: Directory) -> None:
    with open_reading(lived.data) as reading:
        report = refold(reading)
    assert (report.equal, report.events, report.sessions, report.differences) == (True, 200, 4, ())


def test_there_is_nothing_to_read_where_there_is_no_ledger(tmp_path: Path) -> None:
    directory = Directory(tmp_path / "data")
    prepare(directory.data)
    with pytest.raises(NotFoundError), open_reading(directory.data):
        raise AssertionError("it was opened")


def test_a_wait_ends_as_soon_as_all_rest(lived: Directory) -> None:
    invocation_id = new_id()
    append_more(lived, invocation_id, events=4)
    ledger = open_ledger(lived.data)
    ended_at: list[float] = []

    def end() -> None:

        from governance.ledger import Append
        from interlock.event import invocation_stream
        from tests.support.ledger import a_head

        head = head_with(a_head(invocation_id, session="s-1"), phase="done")
        stream = invocation_stream(invocation_id)
        with ledger.write() as transaction:
            transaction.append([Append(stream, 4, life(invocation_id)[4:], head, None, "default", "s-1")])
        ended_at.append(time.monotonic())

    with open_reading(lived.data) as reading:
        outcomes = LedgerOutcomes(reading.ledger)
        timer = threading.Timer(0.2, end)
        timer.start()
        heads = outcomes.wait([invocation_id], 20)
        noticed_at = time.monotonic()
        timer.join()
        record = outcomes.record(invocation_id)
    ledger.close()
    assert heads[invocation_id].phase == "done"
    assert noticed_at - ended_at[0] < 0.5
    assert record is not None
    assert record.status == "COMPLETED"


def test_a_wait_that_is_over_says_where_things_stand(lived: Directory) -> None:
    invocation_id = new_id()
    append_more(lived, invocation_id, events=2)
    with open_reading(lived.data) as reading:
        heads = LedgerOutcomes(reading.ledger).wait([invocation_id, new_id()], 0.05)
    assert list(heads) == [invocation_id]


def test_events_come_in_order_and_no_more_than_asked(lived: Directory) -> None:
    with open_reading(lived.data) as reading:
        events = LedgerOutcomes(reading.ledger).events(10, 5)
    assert [event.seq for event in events] == [11, 12, 13, 14, 15]
