"""What a clock that ran ahead wrote does not wait for that clock's moment."""

from __future__ import annotations

from governance.ledger import Due
from interlock.fault import NoFaults
from scheduler.dispatch import Dispatch
from scheduler.lease_watch import LeaseWatch
from scheduler.lost import Lost
from scheduler.sweep import Sweep
from tests.support.court import Court
from tests.support.workbench import KeptHints

HOUR_US = 3_600_000_000


def test_a_due_row_an_hour_ahead_is_pulled_in_and_a_parked_one_is_left() -> None:
    court, hints = Court(), KeptHints()
    queued = court.say("echo", {"value": 1}).invocation_id
    parked = court.say("pay", {"amount": 1}, stage="p").invocation_id
    assert queued is not None
    expiry = court.due(parked)
    with court.ledger.write() as transaction:
        transaction.set_due(Due("invocation", queued, "release", court.clock.now_us() + HOUR_US))
    settings = court.settings
    sweep = Sweep(
        court.ledger,
        Dispatch(court.ledger, court.line, settings),
        Lost(court.ledger, court.line, settings, NoFaults()),
        LeaseWatch(settings.lease_ms, settings.beat_ms, lambda _boot: None),
        hints,
        dict,
        lambda _ids: None,
        settings,
        NoFaults(),
    )
    sweep.step()
    due = court.due(queued)
    assert due is not None
    assert due.at_us <= court.clock.now_us()
    assert court.due(parked) == expiry
    sweep.step()
    assert hints.ids() == [queued]
