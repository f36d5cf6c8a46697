"""Ledger, relay, broker, projector together, while the broker is killed, restarted and emptied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.adapters.redis_stream import RedisEventStream, RedisProjectionNotice
from interlock.adapters.redis_waker import RedisWaker
from interlock.reduce import fold
from scheduler.relay import ROLE, Relay, RelaySettings
from tests.support.delivery import log_of
from tests.support.history import append_lives
from tests.support.valkey import ValkeyServer
from tests.support.wait import until
from workers.adapters.sqlite_projection import FILE_NAME, SqliteProjection
from workers.project import ProjectSettings, StreamProjector
from workers.rebuild import rebuild

Disturb = Callable[[ValkeyServer], None]


class Following:
    """A relay and projectors, each in a thread of its own, as `up` runs them in processes."""

    def __init__(self, server: ValkeyServer, ledger: SqliteLedger, views: Path) -> None:
        self.server, self.ledger = server, ledger
        self.projection = SqliteProjection.open(views)
        self.stream = RedisEventStream(server.client(), server.client(blocking=True))
        self.waker = RedisWaker(server.client(), server.client(blocking=True))
        self.notice = RedisProjectionNotice(server.client())
        self.relay = Relay(ledger, self.stream, self.waker, settings=RelaySettings(poll_seconds=0.2))
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, projectors: int = 1) -> None:
        self._run(self.relay.run)
        for number in range(projectors):
            reader = RedisEventStream(self.server.client(), self.server.client(blocking=True))
            settings = ProjectSettings(reader=f"projector-{number}", silence_seconds=0.2, batch=100)
            self._run(
                StreamProjector(
                    self.ledger, reader, self.projection, notice=self.notice, settings=settings
                ).run
            )

    def write(self, lives: int) -> int:
        """Append and wake; returns the last number."""
        append_lives(self.ledger, lives, batch=10)
        self.waker.wake(ROLE)
        return self.last_seq()

    def last_seq(self) -> int:
        with self.ledger.read() as view:
            return view.last_seq()

    def wait_until_level(self) -> None:
        last = self.last_seq()
        until(lambda: self.projection.checkpoint().seq == last, seconds=20, what=f"{last} is projected")

    def stop(self) -> None:
        self._stopping.set()
        self.waker.wake(ROLE)
        for thread in self._threads:
            thread.join(20)
        self.projection.close()

    def _run(self, run: Callable[[threading.Event], object]) -> None:
        self._threads.append(threading.Thread(target=run, args=(self._stopping,)))
        self._threads[-1].start()


@pytest.fixture
def following(server: ValkeyServer, ledger: SqliteLedger, tmp_path: Path) -> Iterator[Following]:
    following = Following(server, ledger, tmp_path / FILE_NAME)
    yield following
    following.stop()


def _assert_equal(following: Following) -> None:
    log = log_of(following.ledger)
    assert following.projection.sessions()
    for tenant, session in following.projection.sessions():
        folded = fold(session, log, tenant=tenant)
        assert following.projection.state(session, tenant).to_bytes() == folded.to_bytes()


def _empty(server: ValkeyServer) -> None:
    server.client().flushall()


def _kill_and_restart(server: ValkeyServer) -> None:
    server.kill()
    server.start()


def _stop_and_restart(server: ValkeyServer) -> None:
    server.stop()
    server.start()


@pytest.mark.parametrize("disturb", [_empty, _kill_and_restart, _stop_and_restart])
def test_a_disturbed_broker_is_refilled_and_the_projection_goes_on(
    following: Following, disturb: Disturb
) -> None:
    following.start()
    for _ in range(3):
        following.write(30)
        disturb(following.server)
        following.write(30)
    following.wait_until_level()
    last = following.last_seq()
    until(lambda: following.stream.tail().seq == last, seconds=20, what="the stream is level")
    numbers = [entry.seq for entry in following.stream.read(0, 10_000, 0)]
    assert numbers == list(range(numbers[0], last + 1))
    _assert_equal(following)


def test_the_projection_goes_on_without_any_broker(following: Following) -> None:
    following.start()
    following.write(10)
    following.wait_until_level()
    following.server.kill()
    append_lives(following.ledger, 30)
    following.wait_until_level()
    following.server.start()
    last = following.last_seq()
    until(lambda: following.stream.tail().seq == last, seconds=20, what="the stream is level again")
    _assert_equal(following)


def test_two_projectors_on_one_projection_fold_everything_once(following: Following) -> None:
    following.start(projectors=2)
    for _ in range(10):
        following.write(30)
    following.wait_until_level()
    until(lambda: following.stream.slowest() is not None, seconds=30, what="readers are registered")
    _assert_equal(following)


def test_who_waits_for_a_number_is_told_by_the_notice(following: Following) -> None:
    following.start()
    assert following.notice.wait(following.write(5), 10)


def test_a_rebuild_beside_a_running_projector_is_equal_at_one_checkpoint(
    following: Following, tmp_path: Path
) -> None:
    following.start()
    following.write(200)
    report = rebuild(following.ledger, tmp_path)
    following.write(50)
    switched = rebuild(following.ledger, tmp_path, switch=True)
    following.write(50)
    following.wait_until_level()
    assert report.equal
    assert switched.equal
    assert switched.switched
    assert following.projection.checkpoint().epoch == 2
    _assert_equal(following)
