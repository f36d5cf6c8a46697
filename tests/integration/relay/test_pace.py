"""How quick relay, projection and rebuild are, far below what a machine reaches: a net for accidents."""

from __future__ import annotations

import time
from pathlib import Path

from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.adapters.redis_stream import RedisEventStream
from interlock.memory_stream import ManualWaker
from scheduler.relay import Relay
from tests.support.history import append_lives
from tests.support.valkey import ValkeyServer
from workers.adapters.sqlite_projection import FILE_NAME, SqliteProjection
from workers.project import StreamProjector
from workers.rebuild import rebuild

FLOOR_EVENTS_PER_S = 2_000
"""The budget is 10,000; a shared machine under test may be slow."""


def test_ten_thousand_events_are_published_folded_and_folded_anew(
    server: ValkeyServer, ledger: SqliteLedger, tmp_path: Path
) -> None:
    append_lives(ledger, 2_000)
    stream = RedisEventStream(server.client(), server.client(blocking=True))
    projection = SqliteProjection.open(tmp_path / FILE_NAME)
    relay = Relay(ledger, stream, ManualWaker())
    projector = StreamProjector(ledger, stream, projection)
    began = time.monotonic()
    while relay.step():
        pass
    while projector.step():
        pass
    seconds = time.monotonic() - began
    assert projection.checkpoint().seq == 10_000
    report = rebuild(ledger, tmp_path)
    projection.close()
    print(f"published and projected {10_000 / seconds:.0f}/s, rebuilt {report.events_per_s:.0f}/s")
    assert report.equal
    assert min(10_000 / seconds, report.events_per_s) > FLOOR_EVENTS_PER_S
