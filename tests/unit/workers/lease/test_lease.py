"""A boot: its lock says whether it lives, its beat only ever counts."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from governance.ledger import Boot
from interlock.errors import LedgerUnavailableError
from tests.support.wait import until
from workers.lease import Lease, clear, is_boot_alive, lock_path


class Beats:
    """Where a lease's beats go."""

    def __init__(self) -> None:
        self.written: list[Boot] = []
        self.is_away = False

    def __call__(self, boot: Boot) -> None:
        if self.is_away:
            raise LedgerUnavailableError("away")
        self.written.append(boot)


def test_the_first_beat_is_written_before_it_returns(tmp_path: Path) -> None:
    lease, beats = Lease(tmp_path, "pool.pure"), Beats()
    lease.begin(beats, 7, 60_000)
    [first] = beats.written
    assert (first.boot_id, first.role, first.pid) == (lease.boot_id, "pool.pure", os.getpid())
    assert (first.counter, first.started_us, first.stopped) == (1, 7, False)
    lease.end()


def test_it_counts_on_and_stops_at_a_clean_end(tmp_path: Path) -> None:
    lease, beats = Lease(tmp_path, "pool.pure"), Beats()
    lease.begin(beats, 7, 1)
    until(lambda: len(beats.written) > 3, 30, "it beats")
    lease.end()
    counters = [boot.counter for boot in beats.written]
    assert counters == list(range(1, len(counters) + 1))
    assert [boot.stopped for boot in beats.written] == [False] * (len(counters) - 1) + [True]
    assert not lock_path(tmp_path, lease.boot_id).exists()


def test_a_beat_that_was_not_written_is_not_counted(tmp_path: Path) -> None:
    lease, beats = Lease(tmp_path, "pool.pure"), Beats()
    lease.begin(beats, 7, 1)
    beats.is_away = True
    before = len(beats.written)
    beats.is_away = False
    until(lambda: len(beats.written) > before + 2, 30, "it beats again")
    lease.end()
    assert [boot.counter for boot in beats.written] == list(range(1, len(beats.written) + 1))


def test_a_boot_lives_as_long_as_any_process_holds_its_lock(tmp_path: Path) -> None:
    lease = Lease(tmp_path, "pool.pure")
    assert is_boot_alive(tmp_path, lease.boot_id)
    assert is_boot_alive(tmp_path, lease.boot_id), "looking takes nothing"
    held_by_a_child = os.dup(lease.lock_fd)
    os.close(lease.lock_fd)
    assert is_boot_alive(tmp_path, lease.boot_id)
    os.close(held_by_a_child)
    assert not is_boot_alive(tmp_path, lease.boot_id)
    assert not is_boot_alive(tmp_path, "never-was")


def test_a_start_clears_the_locks_of_the_dead_and_no_living_ones(tmp_path: Path) -> None:
    living, dead = Lease(tmp_path, "pool.pure"), Lease(tmp_path, "pool.fs")
    held_by_a_child = os.dup(living.lock_fd)
    os.close(living.lock_fd)
    os.close(dead.lock_fd)
    new = Lease(tmp_path, "pool.fs")
    assert {path.stem for path in tmp_path.iterdir()} == {living.boot_id, new.boot_id}
    assert is_boot_alive(tmp_path, living.boot_id)
    assert not is_boot_alive(tmp_path, dead.boot_id), "as it was before"
    os.close(held_by_a_child)
    new.end()


def test_no_start_is_cleared_away_by_another_one(tmp_path: Path) -> None:
    """A lock that is made and not held yet looks like a dead one's."""
    is_over = threading.Event()

    def keep_clearing() -> None:
        while not is_over.is_set():
            clear(tmp_path)

    clearing = threading.Thread(target=keep_clearing)
    clearing.start()
    leases = [Lease(tmp_path, "pool.pure") for _ in range(300)]
    is_over.set()
    clearing.join()
    assert all(is_boot_alive(tmp_path, lease.boot_id) for lease in leases)
    for lease in leases:
        lease.end()
