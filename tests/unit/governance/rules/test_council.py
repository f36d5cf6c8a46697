"""What comes on the queue of decisions: one that cannot be judged stops no other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from governance.council import Council, Request
from governance.grant import Grant
from governance.intake import InMemoryBroker, InMemoryIntake
from interlock.adapters.ed25519 import is_signed_by
from interlock.clock import ManualClock
from interlock.fault import NoFaults
from interlock.hint import Hint
from interlock.memory_stream import ManualWaker
from tests.support.court import Court
from tests.support.workbench import KeptHints


class _Poisoned:
    """A grant that cannot judge one id."""

    def __init__(self, grant: Grant, poison: str) -> None:
        self._grant, self._poison = grant, poison

    def review(self, invocation_ids: Iterable[str]) -> list[Hint]:
        ids = list(invocation_ids)
        if self._poison in ids:
            raise TypeError(self._poison)
        return self._grant.review(ids)


def test_one_that_cannot_be_judged_again_stops_no_other() -> None:
    court = Court()
    court.approver()
    ids = [court.say("pay", {"amount": n}, stage=f"g{n}").invocation_id for n in range(5)]
    for identifier in ids:
        assert court.cast(court.vote_of(identifier)) is None
    grant = cast("Grant", _Poisoned(court.grant, str(ids[2])))
    broker, hints = InMemoryBroker(ManualClock()), KeptHints()
    intake = InMemoryIntake(broker, boot="b", queues=("q",))
    council = Council(
        intake,
        lambda _item: Request("interlock.review", {"ids": ids}, "local"),
        grant,
        court.ledger,
        court.line,
        is_signed_by,
        hints,
        ManualWaker(),
        NoFaults(),
    )
    broker.put("q", b"review")
    council.handle(intake.take(9, 0))
    assert set(hints.ids()) == {*ids} - {ids[2]}
    assert broker.kept == {}
