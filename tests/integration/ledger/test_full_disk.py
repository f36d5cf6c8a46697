"""A real file system without room: a pause that recovers, nothing accepted is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
from interlock.errors import LedgerUnavailableError
from tests.support.ledger import an_append, an_event, write


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=700k", "tmpfs", str(folder)):
        pytest.skip("this account may not mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_is_a_pause_and_room_ends_it(small_disk: Path) -> None:
    ledger = SqliteLedger.open(small_disk / "ledger.db", SystemClock(), create=True)
    answered = refused = 0
    while refused < 20:
        try:
            write(ledger, an_append(f"i-{answered:03}", events=[an_event(payload=b"x" * 3_000)]))
            answered += 1
        except LedgerUnavailableError:
            refused += 1
    with ledger.read() as view:
        assert view.last_seq() == answered > 0
    assert mount("-o", "remount,size=4m", str(small_disk))
    assert write(ledger, an_append("i-900")) == set()
    with ledger.read() as view:
        assert view.last_seq() == answered + 1
    ledger.close()
