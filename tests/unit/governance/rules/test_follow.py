"""Following a queue gathers under load, and never lets an idle system wait."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from governance.again import TRIES_MAX
from governance.follow import BUSY_ITEMS, GATHERED, PAUSE_SECONDS, Follow
from governance.intake import InMemoryBroker, InMemoryIntake, TakenBatch
from interlock.errors import CommitUnknownError, InterlockError, LedgerUnavailableError

QUEUE = "interlock.propose"


@dataclass
class CountingStop:
    """Stops after so many looks; notes every wait, and waits for none."""

    looks_left: int
    waits: list[float] = field(default_factory=list)

    def is_set(self) -> bool:
        self.looks_left -= 1
        return self.looks_left < 0

    def set(self) -> None:
        self.looks_left = 0

    def wait(self, timeout_seconds: float | None = None) -> bool:
        assert timeout_seconds is not None
        self.waits.append(timeout_seconds)
        return self.looks_left < 0


def followed(sizes: list[int], batch_max: int = 512) -> tuple[list[int], list[float]]:
    """Sizes of the batches that were handled when so many items came before each look, and the waits."""
    broker = InMemoryBroker()
    intake = InMemoryIntake(broker, boot="one", queues=[QUEUE])
    handled: list[int] = []

    def put(size: int) -> None:
        for number in range(size):
            broker.put(QUEUE, f"{number}".encode())

    def handle(batch: TakenBatch) -> None:
        handled.append(len(batch.items))
        intake.done(batch)
        put(sizes.pop(0) if sizes else 0)

    put(sizes.pop(0))
    stop = CountingStop(looks_left=len(sizes) + 1)
    Follow(intake, handle, batch_max, 0.0, lambda _boot: False).run(stop)
    return handled, stop.waits


def test_a_single_item_now_and_then_waits_for_nothing() -> None:
    handled, waits = followed([1, 1, 1])
    assert handled == [1, 1, 1]
    assert waits == []


def test_small_batches_in_quick_succession_gather() -> None:
    handled, waits = followed([BUSY_ITEMS, BUSY_ITEMS])
    assert handled == [BUSY_ITEMS, BUSY_ITEMS]
    assert waits
    assert max(waits) <= 0.005


def test_what_is_large_enough_goes_on_at_once() -> None:
    assert followed([GATHERED, GATHERED]) == ([GATHERED, GATHERED], [])


def test_what_the_dead_left_is_not_gathered() -> None:
    broker = InMemoryBroker()
    for number in range(4 * BUSY_ITEMS):
        broker.put(QUEUE, f"{number}".encode())
    InMemoryIntake(broker, boot="dead", queues=[QUEUE]).take(512, 0.0)
    intake = InMemoryIntake(broker, boot="living", queues=[QUEUE])
    handled: list[int] = []

    def handle(batch: TakenBatch) -> None:
        handled.append(len(batch.items))
        intake.done(batch)

    stop = CountingStop(looks_left=4 * BUSY_ITEMS)
    Follow(intake, handle, 512, 0.0, lambda boot: boot == "dead").run(stop)
    assert handled == [1] * 4 * BUSY_ITEMS
    assert stop.waits == []


def lost_to_another() -> LedgerUnavailableError:
    error = LedgerUnavailableError("40P01: deadlock detected")
    error.data["at_once"] = True
    return error


@pytest.mark.parametrize(
    ("failures", "waits_wanted"),
    [
        pytest.param([CommitUnknownError("the answer was lost")], [PAUSE_SECONDS], id="unknown"),
        pytest.param([LedgerUnavailableError("away")], [PAUSE_SECONDS], id="away"),
        pytest.param([lost_to_another()], [], id="lost to another"),
        pytest.param([lost_to_another()] * TRIES_MAX, [PAUSE_SECONDS], id="lost again and again"),
    ],
)
def test_a_batch_that_could_not_be_handled_is_kept_and_handled_again(
    failures: list[InterlockError], waits_wanted: list[float]
) -> None:
    broker = InMemoryBroker()
    broker.put(QUEUE, b"one")
    intake = InMemoryIntake(broker, boot="one", queues=[QUEUE])
    left, names = [*failures], []

    def handle(batch: TakenBatch) -> None:
        names.append(batch.name)
        if left:
            raise left.pop()
        intake.done(batch)

    stop = CountingStop(looks_left=len(failures) + 1)
    Follow(intake, handle, 512, 0.0, lambda _boot: False).run(stop)
    assert len(names) == len(failures) + 1
    assert len(set(names)) == 1
    assert stop.waits == waits_wanted
    assert broker.kept == {}
