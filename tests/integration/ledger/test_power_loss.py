"""The power fails: whatever was answered by then is in the files, opened afresh, and the chain is whole."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from governance.chain import genesis, link
from interlock.canonical import sha256_hex
from interlock.clock import SystemClock
from tests.support.ledger import an_append, an_event, write

APPENDS = 200
TORN = 60
PAGE = 4_096


@dataclass
class Disk:
    """The ledger's two files as a power failure leaves them; the shared index lives in memory and is lost."""

    path: Path
    file: bytes = b""
    log: bytes = b""

    def look(self) -> Disk:
        log = self.path.with_name(self.path.name + "-wal")
        return Disk(self.path, self.path.read_bytes(), log.read_bytes() if log.exists() else b"")

    def lay_out(self, folder: Path) -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "ledger.db").write_bytes(self.file)
        if self.log:
            (folder / "ledger.db-wal").write_bytes(self.log)
        return folder / "ledger.db"


@dataclass
class CommitPoints:
    """Called right before and right after every commit."""

    before: Callable[[], None]
    after: Callable[[], None]
    commits: list[str] = field(default_factory=list)

    def reach(self, point: str) -> None:
        self.commits.append(point)
        (self.before if point == "ledger.before_commit" else self.after)()


def found_afresh(path: Path) -> int:
    """How many events a new start finds; their chain is followed from the beginning."""
    ledger = SqliteLedger.open(path, SystemClock())
    previous, last = genesis(ledger.info.incarnation), 0
    with ledger.read() as view:
        for event in view.range(0, 10 * APPENDS):
            assert event.seq == last + 1
            assert event.hash == link(previous, event, sha256_hex(event.payload))
            previous, last = event.hash, event.seq
        assert len(view.heads_of("invocation", limit=10 * APPENDS)) == last
    ledger.close()
    return last


def test_a_copy_at_every_commit_holds_what_was_answered_by_then(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "ledger.db")
    answered = 0
    checked: list[tuple[int, int]] = []

    def look() -> None:
        found = found_afresh(disk.look().lay_out(tmp_path / "copy"))
        checked.append((answered, found))

    points = CommitPoints(look, look)
    ledger = SqliteLedger.open(disk.path, SystemClock(), create=True, faults=points)
    for number in range(APPENDS):
        write(ledger, an_append(f"i-{number:03}"))
        answered += 1
    ledger.close()
    assert len(checked) == 2 * APPENDS
    # Before a commit the event may not be there yet, after it (and before the answer) it must.
    assert checked[0::2] == [(number, number) for number in range(APPENDS)]
    assert checked[1::2] == [(number, number + 1) for number in range(APPENDS)]


def test_pages_that_never_reached_the_disk_cost_only_what_was_not_answered(
    tmp_path: Path, rng: random.Random
) -> None:
    """Between two answers any part of what was written may be lost: whole pages, or the end of one."""
    disk = Disk(tmp_path / "ledger.db")
    states: list[Disk] = []
    points = CommitPoints(lambda: states.append(disk.look()), lambda: states.append(disk.look()))
    ledger = SqliteLedger.open(disk.path, SystemClock(), create=True, faults=points)
    for number in range(TORN):
        write(ledger, an_append(f"i-{number:03}", events=[an_event(payload=b"x" * 5_000)]))
    for answered in range(TORN):
        before, after = states[2 * answered], states[2 * answered + 1]
        torn = Disk(disk.path, after.file, lose_some(before.log, after.log, rng))
        assert found_afresh(torn.lay_out(tmp_path / "copy")) in (answered, answered + 1)
    ledger.close()


def lose_some(before: bytes, after: bytes, rng: random.Random) -> bytes:
    """What was written since `before`, with pages of it still zero or old, and perhaps cut short."""
    kept = bytearray(after)
    for start in range(len(before), len(after), PAGE):
        if rng.random() < 0.3:
            kept[start : start + PAGE] = bytes(len(kept[start : start + PAGE]))
    if rng.random() < 0.5:
        del kept[rng.randint(len(before), len(after)) :]
    return bytes(kept)


@pytest.mark.timeout(60)
def test_a_checkpoint_in_the_middle_loses_nothing(tmp_path: Path, rng: random.Random) -> None:
    """The log is moved into the file while events go on: the file half written, the log still whole."""
    disk = Disk(tmp_path / "ledger.db")
    ledger = SqliteLedger.open(disk.path, SystemClock(), create=True)
    for number in range(40):
        write(ledger, an_append(f"i-{number:03}", events=[an_event(payload=b"x" * 5_000)]))
    before = disk.look()
    with ledger._database.reading() as connection:
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        connection.execute("BEGIN")
    after = disk.look()
    for _ in range(20):
        pages = bytearray(after.file)
        for start in range(0, len(pages), PAGE):
            if rng.random() < 0.5:
                pages[start : start + PAGE] = before.file[start : start + PAGE].ljust(PAGE, b"\0")
        half = Disk(disk.path, bytes(pages[: len(pages)]), before.log)
        assert found_afresh(half.lay_out(tmp_path / "copy")) == 40
    ledger.close()
