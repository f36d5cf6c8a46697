"""Claims of the dead are looked for when somebody goes, and at every beat beside; not at every look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from governance.ledger import Boot
from governance.line import Line
from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.fault import NoFaults
from interlock.settings import Settings
from scheduler.dispatch import Dispatch
from scheduler.lease_watch import LeaseWatch
from scheduler.lost import Lost
from scheduler.sweep import Sweep
from tests.support.permitted import Asked, grant, phase_of, put_contracts
from tests.support.workbench import KeptHints, Workbench, tools

BOOT = Boot("boot-1", "pool-pure", "here", 1, 1, 1, stopped=False)


class Swept:
    """A sweep beside a pool whose one claim stands; `gone` are the boots whose lock is free."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.ledger = InMemoryLedger(ManualClock())
        self.gone: set[str] = set()
        put_contracts(self.ledger, [tools()["echo"]])
        self.bench = Workbench(self.ledger, folder)
        self.beat(BOOT)
        line = Line(settings)
        self.sweep = Sweep(
            self.ledger,
            Dispatch(self.ledger, line, settings),
            Lost(self.ledger, line, settings, NoFaults()),
            LeaseWatch(settings.lease_ms, settings.beat_ms, lambda boot: boot.boot_id in self.gone),
            KeptHints(),
            dict,
            lambda _ids: None,
            settings,
            NoFaults(),
        )

    def beat(self, boot: Boot) -> None:
        with self.ledger.write() as transaction:
            transaction.beat(boot)

    def claim(self) -> str:
        [identifier] = grant(self.ledger, self.bench.governance, [Asked(tools()["echo"], {"value": 1})])
        assert self.bench.claiming.claim(self.bench.claiming.prepare([identifier])).winners == {identifier}
        return identifier

    def phase_after_a_look(self, identifier: str) -> str:
        self.sweep.step()
        return phase_of(self.ledger, identifier)


@pytest.fixture
def swept(tmp_path: Path) -> Iterator[Swept]:
    made = Swept(tmp_path, Settings())
    yield made
    made.bench.spool.close()


def test_a_living_claim_stands_and_a_dead_one_is_settled_at_the_very_next_look(swept: Swept) -> None:
    identifier = swept.claim()
    assert [swept.phase_after_a_look(identifier) for _ in range(3)] == ["running"] * 3
    swept.gone.add(BOOT.boot_id)
    assert swept.phase_after_a_look(identifier) == "queued"


def test_the_claim_of_who_stopped_is_settled_at_the_very_next_look(swept: Swept) -> None:
    identifier = swept.claim()
    assert swept.phase_after_a_look(identifier) == "running"
    swept.beat(BOOT._replace(stopped=True))
    assert swept.phase_after_a_look(identifier) == "queued"


def test_what_the_dead_claim_after_all_is_settled_at_the_next_beat(tmp_path: Path) -> None:
    swept = Swept(tmp_path, Settings(beat_ms=0))
    swept.beat(BOOT._replace(stopped=True))
    swept.sweep.step()
    assert swept.phase_after_a_look(swept.claim()) == "queued"
    swept.bench.spool.close()
