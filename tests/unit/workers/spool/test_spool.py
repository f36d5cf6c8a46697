"""The spool: durable before the ledger is, read by the next process, and out of the way once it is in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interlock.canonical import canonical, read_stored
from tests.support.permitted import Asked, grant, phase_of, put_contracts, types_of
from tests.support.workbench import FailingLedger, Workbench, tools
from workers.spool import FOREIGN, ORPHANS, Block, Spool, read_block, spooled
from workers.supervisor.port import Call, Completed, Failed
from workers.supervisor.report import write_orphan

SHELL = tools()["shell.run"]
PLAIN = SHELL.model_copy(update={"output": None})


def test_a_block_is_as_large_as_it_will_be_from_the_start(tmp_path: Path) -> None:
    block = Block(tmp_path / "0.block", 65_536)
    before = os.stat(block.path)
    block.write(b"x" * 60_000)
    after = os.stat(block.path)
    assert (before.st_size, before.st_blocks) == (after.st_size, after.st_blocks)
    assert before.st_blocks * 512 >= 65_536
    block.close()


def test_a_record_comes_back_until_it_is_cleared(tmp_path: Path) -> None:
    block = Block(tmp_path / "0.block", 4_096)
    assert read_block(block.path) is None
    block.write(b"first")
    block.write(b"2nd")
    assert read_block(block.path) == b"2nd"
    block.clear()
    assert read_block(block.path) is None
    block.close()


def test_a_record_that_was_cut_is_none(tmp_path: Path) -> None:
    block = Block(tmp_path / "0.block", 4_096)
    block.write(b"a whole record")
    with open(block.path, "r+b") as file:
        file.seek(50)
        file.write(b"?")
    assert read_block(block.path) is None
    block.close()


def test_a_record_larger_than_its_block_is_kept_all_the_same(tmp_path: Path) -> None:
    block = Block(tmp_path / "0.block", 1_024)
    block.write(b"y" * 10_000)
    assert read_block(block.path) == b"y" * 10_000
    block.close()


def test_a_living_boot_keeps_its_own(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "alive", 1, 4_096)
    spool.take().write(b"mine")
    assert list(spooled(tmp_path, lambda _boot: True)) == []
    assert [record for _, record in spooled(tmp_path, lambda _boot: False)] == [b"mine"]
    spool.close()
    assert spool.folder.exists()


def test_an_empty_spool_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "alive", 2, 4_096)
    spool.give_back(spool.take())
    spool.close()
    assert not spool.folder.exists()


def shell_bench(ledger: FailingLedger, folder: Path, boot: str) -> Workbench:
    return Workbench(
        ledger, folder, pool="shell", answer=lambda _call: Completed(0, {}), contracts=[PLAIN], boot=boot
    )


def left_behind(ledger: FailingLedger, folder: Path) -> str:
    """An outcome that a process spooled while the ledger was away, and then died of."""
    put_contracts(ledger, [PLAIN])

    def answer(_call: Call) -> Completed:
        ledger.is_away = True
        return Completed(0, {})

    dead = Workbench(ledger, folder, pool="shell", answer=answer, contracts=[PLAIN], boot="dead")
    [identifier] = grant(ledger, dead.governance, [Asked(PLAIN, {"argv": ["true"]})])
    dead.given_up.set()
    dead.serve(identifier)
    ledger.is_away = False
    return identifier


def test_what_a_dead_process_spooled_is_brought_in_before_the_next_claims(
    ledger: FailingLedger, tmp_path: Path
) -> None:
    identifier = left_behind(ledger, tmp_path)
    assert phase_of(ledger, identifier) == "running"
    heir = shell_bench(ledger, tmp_path, "heir")
    assert phase_of(ledger, identifier) == "done"
    assert heir.serving.refusal() is None
    assert heir.supervisor.calls == []
    assert not (tmp_path / "spool" / "dead").exists()


def test_nothing_is_claimed_before_the_spool_of_the_dead_is_empty(
    ledger: FailingLedger, tmp_path: Path
) -> None:
    identifier = left_behind(ledger, tmp_path)
    ledger.is_away = True
    heir = shell_bench(ledger, tmp_path, "heir")
    assert heir.serving.refusal() == "outcomes of the dead are not in the ledger yet"
    ledger.is_away = False
    heir.serving.mend()
    assert heir.serving.refusal() is None
    assert phase_of(ledger, identifier) == "done"


def test_an_outcome_of_another_ledger_is_set_aside(ledger: FailingLedger, tmp_path: Path) -> None:
    identifier = left_behind(ledger, tmp_path)
    [(path, record)] = list(spooled(tmp_path / "spool", lambda _boot: False))
    value = read_stored(record)
    assert isinstance(value, dict)
    block = Block(path, 65_536)
    block.write(canonical({**value, "incarnation": "another"}))
    block.close()
    shell_bench(ledger, tmp_path, "heir")
    assert phase_of(ledger, identifier) == "running"
    assert len(list((tmp_path / "spool" / FOREIGN).iterdir())) == 1


@pytest.mark.parametrize(
    ("outcome", "last"),
    [
        (Completed(0, {}), "ToolExecutionCompleted"),
        (Failed("POOL_LOST", "the pool is gone", began=True), "ToolExecutionFailed"),
    ],
)
def test_what_a_supervisor_wrote_after_its_pools_death_is_brought_in(
    ledger: FailingLedger, tmp_path: Path, outcome: Completed | Failed, last: str
) -> None:
    put_contracts(ledger, [PLAIN])
    dead = shell_bench(ledger, tmp_path, "dead")
    [identifier] = grant(ledger, dead.governance, [Asked(PLAIN, {"argv": ["true"]})])
    [item] = dead.claiming.prepare([identifier])
    assert dead.claiming.claim([item]).winners
    orphans = tmp_path / "spool" / ORPHANS
    orphans.mkdir()
    call = Call(identifier, "shell.run", {}, "s", None, frozenset(), 1, 1, 1, claim=item.nonce)
    write_orphan(orphans, call, outcome)
    shell_bench(ledger, tmp_path, "heir")
    assert types_of(ledger, identifier)[-1] == last
    assert list(orphans.iterdir()) == []


def test_a_file_that_cannot_be_told_is_set_aside_and_stops_nothing(
    ledger: FailingLedger, tmp_path: Path
) -> None:
    orphans = tmp_path / "spool" / ORPHANS
    orphans.mkdir(parents=True)
    (orphans / "x.1.json").write_bytes(b'{"outcome": {"kind": "completed"}, "invocation_id": 7}')
    (orphans / "y.1.json").write_bytes(b"[]")
    dead = Block(tmp_path / "spool" / "0.block", 4_096)
    dead.close()
    bench = shell_bench(ledger, tmp_path, "heir")
    assert bench.serving.refusal() is None
    assert len(list((tmp_path / "spool" / FOREIGN).iterdir())) == 2
