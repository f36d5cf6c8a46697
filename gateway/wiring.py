"""How a face tells the running roles that something waits for them. Losing a word of it costs one sweep.

Nothing here raises for a lost broker: what was recorded stands, and whatever is due finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from gateway.embedded.broker import is_ready
from gateway.embedded.directory import DataDirectory
from interlock.errors import BrokerUnavailableError
from interlock.hint import Hint


def broker_answers(directory: DataDirectory) -> bool:
    """Whether the broker answers: the directory's own, or the server that the settings name."""
    if not directory.broker_server:
        return is_ready(directory)
    from interlock.adapters.redis_client import broker_errors, connect

    client = connect(directory.broker_client_url)
    try:
        with broker_errors():
            return bool(client.ping())
    except BrokerUnavailableError:
        return False
    finally:
        client.close()


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
