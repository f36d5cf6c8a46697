"""A claim of another host may live until its boot says otherwise: its lock lies elsewhere."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from gateway.claimant import life_probe, lock_probe
from gateway.embedded.directory import DataDirectory
from governance.ledger import Boot
from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from workers.lease import Lease

ELSEWHERE = Boot("boot-elsewhere", "pool.fs", "other-host:kernel", 1, 1, 0, stopped=False)


def test_a_missing_lock_says_nothing_of_another_host(tmp_path: Path) -> None:
    directory, ledger = DataDirectory.at(tmp_path), InMemoryLedger(ManualClock())
    lease = Lease(directory.boots, "pool.fs")
    with ledger.write() as transaction:
        transaction.beat(ELSEWHERE)
    with ledger.read() as view:
        may_live = life_probe(directory, view)
    assert [may_live(boot) for boot in (ELSEWHERE.boot_id, lease.boot_id, "never-was")] == [True, True, False]
    os.close(lease.lock_fd)
    assert not may_live(lease.boot_id)
    with ledger.write() as transaction:
        transaction.beat(ELSEWHERE._replace(stopped=True))
    with ledger.read() as view:
        assert not life_probe(directory, view)(ELSEWHERE.boot_id)


def test_a_lock_is_tried_only_where_it_lies(tmp_path: Path) -> None:
    is_free = lock_probe(DataDirectory.at(tmp_path))
    here = ELSEWHERE._replace(host=f"{socket.gethostname()}:kernel")
    assert (is_free(ELSEWHERE), is_free(here)) == (None, True)
