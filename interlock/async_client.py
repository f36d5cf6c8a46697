"""The client for coroutines: says of a proposal what the other one says, and never blocks its event loop.

What is submitted in one turn of the loop is carried together by one thread; all waits share one question.
Decides nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from interlock.adapters.queue_channel import QueueChannel
from interlock.answer import Answer
from interlock.carrier import Carried, Carrier, ListeningCourier, Told, unsent
from interlock.channel import ProposalChannel
from interlock.client import RESEND_SECONDS, TIMEOUT_SECONDS, Client, OutcomeSource, way_in
from interlock.courier import Outcome, Submitted
from interlock.errors import (
    AcceptanceUnknownError,
    NotAcceptedError,
    RetryLaterError,
    UsageError,
)
from interlock.event import StoredEvent
from interlock.fault import FaultPoints, NoFaults
from interlock.identifier import new_id
from interlock.proposal import sign_proposal
from interlock.receipt import ToolResult
from interlock.seal import Signer
from interlock.state import ToolInvocationRecord
from interlock.watcher import RESTING, Watcher

UNDERWAY_MAX = 1_000
READERS = 2
REQUESTERS = 4

P = ParamSpec("P")
T = TypeVar("T")
Proposals = Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]


class RestingSource(OutcomeSource, Protocol):
    """A source that is asked about many at once. One that cannot be is asked one by one."""

    def resting(self, invocation_ids: Sequence[str], /) -> Mapping[str, ToolInvocationRecord]:
        """The records of those of these that are final, or unknown until somebody looks."""
        ...


def _same_as(
    sync: Callable[Concatenate[Client, P], T],
) -> Callable[
    [Callable[..., Coroutine[Any, Any, T]]], Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]
]:
    """Takes what the synchronous method takes: its parameters are written once, there."""

    def signed(
        method: Callable[..., Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
        method.__signature__ = inspect.signature(sync)  # type: ignore[attr-defined]  # functions may bear one
        return cast("Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]", method)

    return signed


class AsyncClient:
    """Speaks to a running system over its broker, from one event loop; make one in each loop.

    Takes what `Client` takes. At most `underway_max` submissions are on their way at once; more wait.
    """

    def __init__(
        self,
        broker: str | ProposalChannel,
        *,
        source: OutcomeSource | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        resend_seconds: float = RESEND_SECONDS,
        client: str | None = None,
        signer: Signer | None = None,
        queue: str | None = None,
        faults: FaultPoints | None = None,
        underway_max: int = UNDERWAY_MAX,
    ) -> None:
        channel = QueueChannel.at(broker) if isinstance(broker, str) else broker
        self._sync = Client(
            channel, source=source, timeout_seconds=timeout_seconds, client=client, signer=signer
        )
        way = way_in(client, signer, queue)
        sign = None
        if client is not None and signer is not None:
            sign = partial(sign_proposal, client=client, signer=signer)
        courier = ListeningCourier(
            channel,
            queue=way.queue,
            replies=way.replies,
            timeout_seconds=timeout_seconds,
            resend_seconds=resend_seconds,
            sign=sign,
            faults=faults or NoFaults(),
        )
        self._source = source
        self._underway_max = underway_max
        self._places = asyncio.Semaphore(underway_max)
        self._carrier = Carrier(courier, self._tell)
        self._gathered: list[Carried] = []
        self._watcher = Watcher(self._look)
        self._readers = ThreadPoolExecutor(READERS, "interlock-reader")
        self._requesters = ThreadPoolExecutor(REQUESTERS, "interlock-request")
        self._calls: set[asyncio.Future[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._closing: asyncio.Future[None] | None = None

    # --- proposing ---

    @_same_as(Client.submit)
    async def submit(self, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> Submitted:
        """Propose one invocation, as `Client.submit` does; raises what it raises.

        A cancelled coroutine takes nothing back: what was sent may be accepted. Give an `id`, and ask for it.
        """
        unknown = fields.keys() - _FIELDS
        if unknown:
            raise TypeError(f"submit() got an unexpected keyword argument {sorted(unknown)[0]!r}")
        carried = await self._send({"tool": tool, "arguments": arguments, **fields})
        outcome = await carried.future
        if isinstance(outcome, Submitted):
            return outcome
        raise outcome

    async def submit_many(self, proposals: Proposals) -> AsyncIterator[Outcome]:
        """The same for many, given as the keyword arguments of `submit`; one outcome each, in their order.

        What `submit` raises for one is its outcome here. Who stops asking never learns of those on their way.
        """
        underway: deque[Carried] = deque()
        try:
            async for said in _each(proposals):
                underway.append(await self._send(said))
                if len(underway) == self._underway_max:
                    yield await _outcome(underway.popleft())
            while underway:
                yield await _outcome(underway.popleft())
        finally:
            for carried in underway:
                carried.future.cancel()

    async def _send(self, said: Mapping[str, Any]) -> Carried:
        """Take a place and put it with what else this turn of the loop submits."""
        loop = self._here()
        await self._places.acquire()
        if said.get("id") is None:
            said = {**said, "id": new_id()}
        carried = Carried(said, loop.create_future())
        if self._is_closed:
            self._deliver([(carried, unsent(carried))])
            return carried
        if not self._gathered:
            loop.call_soon(self._hand_over)
        self._gathered.append(carried)
        return carried

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        sendable = [one for one in gathered if not one.future.done()]
        for _ in range(len(gathered) - len(sendable)):
            self._places.release()
        if sendable:
            self._carrier.give(sendable)

    def _tell(self, told: Told) -> None:
        """In the carrier's thread: let the loop know."""
        if told and self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed, so nobody waits
                self._loop.call_soon_threadsafe(self._deliver, told)

    def _deliver(self, told: Told) -> None:
        for carried, outcome in told:
            self._places.release()
            if not carried.future.done():
                carried.future.set_result(outcome)

    # --- what became of it ---

    async def wait(self, invocation_id: str, seconds: float) -> ToolInvocationRecord:
        """The record once it is final, or its outcome unknown; RetryLaterError (WAIT_TIMEOUT) before."""
        self._reading()
        try:
            async with asyncio.timeout(seconds):
                return await self._watcher.rest(invocation_id)
        except TimeoutError:
            record = await self.record(invocation_id)
        if record is not None and record.phase in RESTING:
            return record
        phase = "unknown" if record is None else record.phase
        raise RetryLaterError("WAIT_TIMEOUT", f"{invocation_id} is {phase}", phase=phase)

    async def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """The record as it stands."""
        return await self._read(self._sync.record, invocation_id)

    async def result(self, invocation_id: str) -> ToolResult | None:
        """What came of it, None while nothing has; raises NotFoundError for an id that nobody accepted."""
        return await self._read(self._sync.result, invocation_id)

    async def events(self, after_seq: int = 0, *, limit: int = 1_000) -> AsyncIterator[StoredEvent]:
        """Every event after this sequence number up to now, in order, read in portions of `limit`."""
        while batch := await self._read(self._reading().events, after_seq, limit):
            for event in batch:
                yield event
            after_seq = batch[-1].seq

    def _reading(self) -> OutcomeSource:
        self._here()
        if self._source is None:
            raise UsageError("this client was given no source to read from")
        return self._source

    async def _look(self, invocation_ids: Sequence[str]) -> Mapping[str, ToolInvocationRecord]:
        return await self._read(_resting, self._reading(), invocation_ids)

    async def _read(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._apart(self._readers, partial(ask, *args, **kwargs))

    # --- other requests ---

    @_same_as(Client.cancel)
    async def cancel(self, *args: Any, **kwargs: Any) -> Answer:
        """Ask for the end of one invocation; the governor's answer. Raises RetryLaterError without one."""
        return await self._apart(self._requesters, partial(self._sync.cancel, *args, **kwargs))

    @_same_as(Client.approve)
    async def approve(self, *args: Any, **kwargs: Any) -> Answer:
        """Sign and send one answer to a parked invocation, as `Client.approve` does."""
        return await self._apart(self._requesters, partial(self._sync.approve, *args, **kwargs))

    async def _apart(self, threads: ThreadPoolExecutor, ask: Callable[[], T]) -> T:
        """Ask in a thread. Whoever is cancelled leaves at once; the thread ends when it is answered."""
        call = self._here().run_in_executor(threads, ask)
        self._calls.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            if self._is_closed and not _is_cancelled():
                raise UsageError("this client was closed meanwhile") from None
            raise
        finally:
            self._calls.discard(call)

    # --- life ---

    async def close(self) -> None:
        """Let go of threads and connections. Whoever still waits gets an error that says so.

        Of what is on its way it is not known whether it is accepted (AcceptanceUnknownError); what was not
        sent yet never will be (NotAcceptedError).
        """
        if self._closing is None:
            self._is_closed = True
            self._closing = asyncio.ensure_future(self._close())
        # Whoever stops waiting for it leaves it to go on; whoever asks again waits for the same end.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._watcher.end(UsageError("this client was closed meanwhile; what was waited for goes on"))
        gathered, self._gathered = self._gathered, []
        self._deliver([(one, unsent(one)) for one in gathered])
        for call in self._calls:
            call.cancel()
        try:
            await self._end_carrier()
        finally:
            self._readers.shutdown(wait=False, cancel_futures=True)
            self._requesters.shutdown(wait=False, cancel_futures=True)
            self._sync.close()

    async def _end_carrier(self) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop was closed, so nobody waits
                loop.call_soon_threadsafe(ended.set)

        if self._carrier.end(tell):
            await ended.wait()

    def _here(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise UsageError("this client was closed")
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UsageError("a client belongs to the event loop that used it first: make one in each")
        return loop

    async def __aenter__(self) -> Self:
        self._here()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


_FIELDS = frozenset(inspect.signature(Client.submit).parameters) - {"self"}


def _resting(source: OutcomeSource, invocation_ids: Sequence[str]) -> Mapping[str, ToolInvocationRecord]:
    if hasattr(source, "resting"):
        return cast(RestingSource, source).resting(invocation_ids)
    found = {one: source.record(one) for one in invocation_ids}
    return {one: record for one, record in found.items() if record is not None and record.phase in RESTING}


async def _each(proposals: Proposals) -> AsyncIterator[Mapping[str, Any]]:
    if isinstance(proposals, AsyncIterable):
        async for said in proposals:
            yield said
    else:
        for said in proposals:
            yield said


async def _outcome(carried: Carried) -> Outcome:
    outcome = await carried.future
    if isinstance(outcome, (Submitted, NotAcceptedError, AcceptanceUnknownError)):
        return outcome
    raise outcome


def _is_cancelled() -> bool:
    running = asyncio.current_task()
    return running is not None and running.cancelling() > 0
