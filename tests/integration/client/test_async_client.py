"""Coroutines against a whole system: many at once, over the death of a governor, and what is cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.client import connect_async
from gateway.embedded.control import ask
from interlock.async_client import AsyncClient
from interlock.courier import Submitted
from interlock.errors import NotRunningError
from interlock.identifier import new_id
from interlock.state import ToolInvocationRecord
from tests.support.live import Live, running
from tests.support.wait import until

MANY = 1_000


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A running system; every test in sessions of its own."""
    with running(tmp_path_factory.mktemp("live")) as system:
        yield system


async def echo(client: AsyncClient, session: str, number: int, **more: Any) -> ToolInvocationRecord:
    """Submit one and wait for it; its output is its number."""
    said = await client.submit("echo", {"value": number}, session=session, stage=str(number), **more)
    return await client.wait(said.invocation_id, 60)


def test_a_thousand_at_once_complete_and_each_is_its_own(live: Live) -> None:
    async def work() -> list[tuple[str, ToolInvocationRecord]]:
        async with connect_async(live.directory.path) as client:
            ids = [new_id() for _ in range(MANY)]
            done = await asyncio.gather(
                *(echo(client, f"many-{n % 20}", n, id=one) for n, one in enumerate(ids))
            )
            return list(zip(ids, done, strict=True))

    found = asyncio.run(work())
    assert {record.status for _, record in found} == {"COMPLETED"}
    assert [record.invocation_id for _, record in found] == [one for one, _ in found]
    for number in (0, MANY // 2, MANY - 1):
        one, record = found[number]
        assert (record.stage, record.session) == (str(number), f"many-{number % 20}")
        assert live.receipt(one)["structured_output"] == {"value": number}


def test_many_come_back_in_their_order_while_others_submit(live: Live) -> None:
    ids = [new_id() for _ in range(600)]

    async def work() -> list[str]:
        async with connect_async(live.directory.path, underway_max=100) as client:
            others = asyncio.gather(*(echo(client, "beside", n) for n in range(50)))
            said = (
                {"tool": "echo", "arguments": {"value": 1}, "id": one, "session": "stream"} for one in ids
            )
            found = [one async for one in client.submit_many(said)]
            await others
        assert all(isinstance(one, Submitted) for one in found)
        return [one.invocation_id for one in found if isinstance(one, Submitted)]

    assert asyncio.run(work()) == ids


def test_a_governor_that_is_killed_in_between_loses_none(live: Live) -> None:
    def governor() -> int:
        status: Any = ask(live.directory, {"do": "status"})
        return next(int(role["pid"] or 0) for role in status["roles"] if role["name"] == "governor")

    async def work() -> list[ToolInvocationRecord]:
        async with connect_async(live.directory.path, timeout_seconds=30, resend_seconds=0.2) as client:
            before = [asyncio.ensure_future(echo(client, "kill", n)) for n in range(300)]
            await asyncio.wait(before, return_when=asyncio.FIRST_COMPLETED)
            after = [asyncio.ensure_future(echo(client, "kill", n)) for n in range(300, 600)]
            # They are on their way when it dies.
            await asyncio.to_thread(os.kill, old, signal.SIGKILL)
            return list(await asyncio.gather(*before, *after))

    old = governor()
    found = asyncio.run(work())
    assert {record.status for record in found} == {"COMPLETED"}
    assert len({record.invocation_id for record in found}) == 600
    until(lambda: governor() not in (0, old), 30, "another governor serves")


def test_what_is_cancelled_while_it_is_submitted_can_be_asked_for_by_its_id(live: Live) -> None:
    ids = [new_id() for _ in range(200)]

    async def work() -> list[ToolInvocationRecord]:
        async with connect_async(live.directory.path) as client:
            submissions = [
                asyncio.ensure_future(client.submit("echo", {"value": 1}, id=one, session="cancelled"))
                for one in ids
            ]
            await submissions[0]
            for submission in submissions:
                submission.cancel()
            await asyncio.gather(*submissions, return_exceptions=True)
            return list(await asyncio.gather(*(client.wait(one, 30) for one in ids)))

    assert {record.status for record in asyncio.run(work())} == {"COMPLETED"}


def test_without_a_system_there_is_no_client(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def work() -> None:
        async with connect_async(tmp_path_factory.mktemp("none")):
            raise AssertionError("nothing runs there")

    with pytest.raises(NotRunningError):
        asyncio.run(work())
