"""A client of the embedded system on one data directory: proposes over its broker, reads from its ledger.

Import it in the environment's own Python. It never writes to the ledger.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from gateway.embedded.directory import DataDirectory, default_path
from gateway.reading import LedgerOutcomes, open_reading
from gateway.wiring import broker_answers
from interlock.approval import ApprovalSnapshot
from interlock.async_client import AsyncClient
from interlock.client import Client
from interlock.errors import NotRunningError
from interlock.event import StreamKind
from interlock.phase import Phase

PARKED_MAX = 1_000


@contextmanager
def connect(directory: str | Path | None = None, **options: Any) -> Iterator[Client]:
    """A client of the system that runs on this directory; without one, where the command line looks too.

    `options` are those of `interlock.Client` (`client`, `signer`, `queue`, `timeout_seconds`). Raises
    NotRunningError.
    """
    with ExitStack() as stack:
        place, source = _opened(directory, stack)
        with Client(place.broker_client_url, source=source, **options) as client:
            yield client


@asynccontextmanager
async def connect_async(directory: str | Path | None = None, **options: Any) -> AsyncIterator[AsyncClient]:
    """The same for coroutines; `options` are those of `interlock.AsyncClient`. Raises NotRunningError."""
    stack = ExitStack()
    try:
        place, source = await asyncio.to_thread(_opened, directory, stack)
        async with AsyncClient(place.broker_client_url, source=source, **options) as client:
            yield client
    finally:
        await asyncio.to_thread(stack.close)


def _opened(directory: str | Path | None, stack: ExitStack) -> tuple[DataDirectory, LedgerOutcomes]:
    """The directory of a running system and its ledger, which is closed with the stack."""
    place = _place(directory)
    if not broker_answers(place):
        raise NotRunningError(str(place.path))
    return place, LedgerOutcomes(stack.enter_context(open_reading(place)).ledger)


def parked(directory: str | Path | None = None) -> list[ApprovalSnapshot]:
    """What waits for an answer: the frozen snapshots that an approver decides from and signs."""
    from governance.docket import load_dockets

    with open_reading(_place(directory)) as reading, reading.ledger.read() as view:
        kind, phase = StreamKind.INVOCATION.value, Phase.AWAITING_APPROVAL.value
        heads = view.heads_of(kind, phase=phase, limit=PARKED_MAX)
        dockets = load_dockets(view, [head.id for head in heads])
    return [docket.request.snapshot for docket in dockets.values() if docket.request is not None]


def _place(directory: str | Path | None) -> DataDirectory:
    path = default_path(os.environ, os.geteuid()) if directory is None else directory
    return DataDirectory.at(path, os.environ)
