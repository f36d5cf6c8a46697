"""Finds what waits on clients' queues that nobody serves. Only looks."""

from __future__ import annotations

from collections.abc import Collection

from redis import Redis

from governance.adapters.redis_intake import PRIORITY_SUFFIXES
from interlock.adapters.redis_client import broker_errors
from interlock.proposal import client_queue

FOUND_MAX = 100


def stray_queues(client: Redis, served: Collection[str]) -> dict[str, int]:
    """Queue → items, of those named like a client's that are not `served`; raises BrokerUnavailableError.

    Walks all keys of the broker; at most 100 queues are named.
    """
    lists = {queue + suffix for queue in served for suffix in PRIORITY_SUFFIXES}
    found: dict[str, int] = {}
    with broker_errors():
        for key in client.scan_iter(match=client_queue("*"), count=1_000, _type="list"):
            name = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
            if name not in lists and len(found) < FOUND_MAX:
                found[name] = int(client.llen(key))
    return found
