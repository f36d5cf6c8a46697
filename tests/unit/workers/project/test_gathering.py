"""A busy projector lets the log grow and asks the ledger alone; an idle one waits for nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.memory_stream import InMemoryEventStream
from interlock.projection import Checkpoint
from interlock.stream import EMPTY, StreamEntry
from tests.support.delivery import entries_of
from tests.support.history import append_lives
from tests.support.wait import until
from workers.memory_projection import InMemoryProjection
from workers.project import ProjectSettings, StreamProjector

PATIENT = ProjectSettings(silence_seconds=0.02, poll_seconds=0.01, linger_seconds=0.3, gather_seconds=30.0)


class _CountedStream(InMemoryEventStream):
    """Counts how often it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(self, after: int, limit: int, block_ms: int) -> list[StreamEntry]:
        self.reads += 1
        return super().read(after, limit, block_ms)


class _CountedProjection(InMemoryProjection):
    """Notes where each batch ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []

    def store(self, before: Checkpoint, after: Checkpoint, *changes: object) -> bool:
        self.ends.append(after.seq)
        return super().store(before, after, *changes)  # type: ignore[arg-type]  # handed on as they came


@contextmanager
def following(projector: StreamProjector) -> Iterator[None]:
    stopping = threading.Event()
    thread = threading.Thread(target=projector.run, args=(stopping,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(10)


@pytest.fixture
def ledger() -> InMemoryLedger:
    return InMemoryLedger(ManualClock())


def test_a_busy_log_is_gathered_until_it_stands_still(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 20)
    projection = _CountedProjection()
    with following(StreamProjector(ledger, InMemoryEventStream(), projection, settings=PATIENT)):
        until(lambda: projection.ends == [100], 30, "the first events are folded")
        for _ in range(5):
            append_lives(ledger, 4)
        until(lambda: projection.checkpoint().seq == 200, 30, "what stands still is folded")
    assert len(projection.ends) <= 3, "one batch for each commit is what gathering is to avoid"


def test_what_is_known_to_be_there_needs_no_stream(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 400)
    stream, projection = _CountedStream(), InMemoryProjection()
    stream.publish(entries_of(ledger), after=EMPTY)
    projector = StreamProjector(ledger, stream, projection, settings=ProjectSettings(batch=500))
    with following(projector):
        until(lambda: projection.checkpoint().seq == 2_000, 30, "everything is folded")
        assert stream.reads <= 2, "the first look, and the one after the log stood still"
        until(lambda: stream.slowest() is not None, 30, "it is registered all the same")


def test_an_idle_projector_does_not_gather(ledger: InMemoryLedger) -> None:
    append_lives(ledger, 1)
    projection = InMemoryProjection()
    projector = StreamProjector(ledger, InMemoryEventStream(), projection, settings=PATIENT)
    projector.step()
    began = time.monotonic()
    projector._gather(5, threading.Event())
    assert time.monotonic() - began < PATIENT.linger_seconds
    assert not projector._knows_of_more
