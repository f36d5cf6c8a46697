"""Waits for many invocations at once: whoever waits shares one question, asked at growing intervals.

It asks nothing while nobody waits. Decides nothing, and reads through what it is given.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from interlock.errors import InterlockError
from interlock.phase import Phase
from interlock.state import ToolInvocationRecord

RESTING = frozenset((Phase.DONE.value, Phase.RECONCILIATION_REQUIRED.value))
"""Phases that are not left without somebody from outside."""
INTERVAL_SECONDS = 0.002
INTERVAL_SECONDS_MAX = 0.05
PAUSE_PER_COST = 3.0
"""A question that costs much, since many wait, is asked less often: at most a quarter of the time."""

Look = Callable[[Sequence[str]], Awaitable[Mapping[str, ToolInvocationRecord]]]


class Watcher:
    """Everybody who waits in one event loop. `look` finds the records of those that rest."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._waiting: dict[str, list[asyncio.Future[ToolInvocationRecord]]] = {}
        self._joined = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def rest(self, invocation_id: str) -> ToolInvocationRecord:
        """The record once it is final, or its outcome unknown. Raises what looking raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ToolInvocationRecord] = loop.create_future()
        self._waiting.setdefault(invocation_id, []).append(future)
        self._joined.set()
        if self._watch is None:
            self._watch = loop.create_task(self._run())
        try:
            return await future
        finally:
            self._leave(invocation_id, future)

    def end(self, error: InterlockError) -> None:
        """Raise this for everybody who waits, and ask no more."""
        self._fail(error)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _leave(self, invocation_id: str, future: asyncio.Future[ToolInvocationRecord]) -> None:
        futures = self._waiting.get(invocation_id, [])
        if future in futures:
            futures.remove(future)
            if not futures:
                del self._waiting[invocation_id]

    async def _run(self) -> None:
        interval = INTERVAL_SECONDS
        while self._waiting:
            self._joined.clear()
            began = time.perf_counter()
            try:
                found = await self._look(list(self._waiting))
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
                self._fail(error)
                break
            cost = time.perf_counter() - began
            self._tell(found)
            interval = INTERVAL_SECONDS if found else min(interval * 2, INTERVAL_SECONDS_MAX)
            if self._waiting and await self._pause(interval, cost):
                interval = INTERVAL_SECONDS
        self._watch = None

    async def _pause(self, interval: float, cost: float) -> bool:
        """Wait for the next moment to ask; who joins meanwhile brings it nearer. True: somebody did."""
        least = max(INTERVAL_SECONDS, cost * PAUSE_PER_COST)
        await asyncio.sleep(least)
        try:
            async with asyncio.timeout(interval - least):
                await self._joined.wait()
        except TimeoutError:
            return False
        return True

    def _tell(self, found: Mapping[str, ToolInvocationRecord]) -> None:
        for invocation_id, record in found.items():
            for future in self._waiting.pop(invocation_id, ()):
                if not future.done():
                    future.set_result(record)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    # One each: an error that is raised in many places would gather the traces of all.
                    future.set_exception(copy.copy(error) if isinstance(error, InterlockError) else error)
