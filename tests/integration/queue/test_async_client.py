"""The client for coroutines over a real broker: answered in bulk, and what a broker that goes away leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from governance.adapters.redis_intake import RedisIntake
from governance.intake import Reply
from interlock.async_client import AsyncClient
from interlock.courier import Submitted
from interlock.errors import AcceptanceUnknownError, NotAcceptedError
from interlock.identifier import new_id
from interlock.proposal import PROPOSE_QUEUE
from tests.support.answering import accepting, proposal
from tests.support.valkey import ValkeyServer, valkey_server
from tests.support.wait import until


@contextmanager
def governor(server: ValkeyServer) -> Iterator[None]:
    """Answers whatever comes, without a ledger."""
    intake = RedisIntake(
        server.client(), server.client(blocking=True), boot=new_id(), queues=(PROPOSE_QUEUE,)
    )
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            batch = intake.take(100, 0.05)
            said = [proposal(item.raw) for item in batch.items]
            intake.done(batch, [Reply(accepting(one), one.reply_to, one.id) for one in said])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


async def seen(predicate: Any, what: str) -> None:
    await asyncio.to_thread(until, predicate, 10, what)


def test_many_at_once_are_answered_some_on_lists_of_their_own(server: ValkeyServer, broker: Redis) -> None:
    async def work() -> list[Submitted]:
        async with AsyncClient(server.celery_url) as client:
            said = (client.submit("echo", key=f"k{n}" if n % 50 == 0 else None) for n in range(700))
            return list(await asyncio.gather(*said))

    with governor(server):
        found = asyncio.run(work())
    assert len({one.invocation_id for one in found}) == 700
    assert broker.llen(PROPOSE_QUEUE) == 0


def test_without_a_governor_proposals_are_taken_back(server: ValkeyServer, broker: Redis) -> None:
    async def work() -> list[Any]:
        async with AsyncClient(server.url, timeout_seconds=0.2) as client:
            said = (client.submit("echo") for _ in range(5))
            return list(await asyncio.gather(*said, return_exceptions=True))

    assert {type(one) for one in asyncio.run(work())} == {NotAcceptedError}
    assert broker.llen(PROPOSE_QUEUE) == 0


def test_a_broker_that_restarts_meanwhile_is_waited_for(short_tmp_path: Path) -> None:
    with valkey_server(short_tmp_path) as server:
        watcher = server.client()

        async def work() -> list[Submitted]:
            async with AsyncClient(server.url, resend_seconds=0.1) as client:
                everybody = asyncio.gather(*(client.submit("echo") for _ in range(20)))
                await seen(lambda: watcher.llen(PROPOSE_QUEUE) == 20, "they are sent")
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
                with governor(server):
                    return list(await everybody)

        assert {one.answer.status for one in asyncio.run(work())} == {"accepted"}


def test_of_what_a_broker_took_along_it_is_said_what_is_known(short_tmp_path: Path) -> None:
    with valkey_server(short_tmp_path) as server:
        watcher = server.client()

        async def work() -> list[Any]:
            async with AsyncClient(server.url, timeout_seconds=0.5) as client:
                sent = asyncio.gather(*(client.submit("echo") for _ in range(3)), return_exceptions=True)
                await seen(lambda: watcher.llen(PROPOSE_QUEUE) == 3, "they are sent")
                await asyncio.to_thread(server.stop)
                unsent = await asyncio.gather(client.submit("echo"), return_exceptions=True)
                return [*await sent, *unsent]

        found = asyncio.run(work())
    assert [type(one) for one in found] == [AcceptanceUnknownError] * 3 + [NotAcceptedError]
