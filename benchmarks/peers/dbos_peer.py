"""DBOS as a peer: durable workflows on a PostgreSQL of its own, two processes that dequeue."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peers.frame import POSTGRES_URL, Peer, increment, main, timed

QUEUE = "bench"
READY_SECONDS = 60.0


def _set_up() -> Any:
    """DBOS with its one workflow, not launched."""
    dbos = import_module("dbos")
    name = "bench"
    dbos.DBOS(
        config={
            "name": name,
            "system_database_url": os.environ[POSTGRES_URL],
            "application_version": "bench",
            "executor_id": f"bench-{os.getpid()}",
            "log_level": "ERROR",
            "console_log_level": "ERROR",
            "use_listen_notify": True,
        }
    )
    dbos.DBOS.workflow(name="increment")(increment)
    return dbos


def serve() -> None:
    """Dequeue until ended."""
    dbos = _set_up()
    dbos.DBOS.launch()
    dbos.DBOS.register_queue(QUEUE, polling_interval_sec=0.05)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)


def send(count: int, await_word: Callable[[], None]) -> float:
    """One enqueued workflow after the other, by its client."""
    client = import_module("dbos").DBOSClient(system_database_url=os.environ[POSTGRES_URL])
    options = {"workflow_name": "increment", "queue_name": QUEUE, "app_version": "bench"}
    _await_queue(client)
    await_word()
    taken = timed(lambda: client.enqueue(options), count)
    client.destroy()
    return taken


def _await_queue(client: Any) -> None:
    """The first process that serves makes the tables, version by version, and registers the queue last."""
    give_up_at = time.monotonic() + READY_SECONDS
    while not _has_queue(client):
        if time.monotonic() > give_up_at:
            raise TimeoutError("no process registered the queue")
        time.sleep(0.1)


def _has_queue(client: Any) -> bool:
    try:
        return client.retrieve_queue(QUEUE) is not None
    except Exception:  # noqa: BLE001 - of whatever kind it is while its tables are being made
        return False


PEER = Peer(
    "dbos",
    "DBOSClient.enqueue, 2 processes, polling every 50 ms, usual settings otherwise",
    "each workflow is a row in PostgreSQL (fsync, synchronous_commit): it is recovered and resumed",
    serve,
    send,
)

if __name__ == "__main__":
    main(PEER)
