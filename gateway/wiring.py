"""How a face tells the running roles that something waits for them. Losing a word of it costs one sweep.

Nothing here raises for a lost broker: what was recorded stands, and whatever is due finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from gateway.embedded.directory import DataDirectory
from interlock.errors import BrokerUnavailableError
from interlock.hint import Hint


def ask_review(directory: DataDirectory, invocation_ids: Sequence[str]) -> None:
    """Ask the governor to look at these again: an answer to them was recorded."""
    from interlock.adapters.request_queue import RequestQueue

    with contextlib.suppress(BrokerUnavailableError):
        RequestQueue.at(directory.broker_client_url).review(invocation_ids)


def publish_hints(directory: DataDirectory, hints: Sequence[Hint]) -> None:
    """Tell the pools what may be claimed."""
    from interlock.adapters.celery_hints import CeleryHintPublisher

    if hints:
        with contextlib.suppress(BrokerUnavailableError):
            CeleryHintPublisher(directory.broker_url).publish(hints)


def wake_relay(directory: DataDirectory) -> None:
    """Tell the relay that the ledger has new events."""
    from interlock.adapters.redis_client import connect
    from interlock.adapters.redis_waker import RedisWaker

    url = directory.broker_client_url
    RedisWaker(connect(url), connect(url, blocking=True)).wake("relay")
