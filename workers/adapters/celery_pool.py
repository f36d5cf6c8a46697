"""A pool as a Celery worker: the app, its pinned settings, the one task, and the worker's start and stop.

Celery carries hints and runs threads. No safety rests on any of its settings, which are pinned and checked at
the start all the same; no result, no event and no remote control leaves this worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from celery import Celery, signals
from celery.apps.worker import Worker
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.exceptions import SecurityWarning
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu import Connection, Queue
from kombu.asynchronous import Hub
from kombu.transport.redis import Channel
from kombu.utils.objects import cached_property
from redis.exceptions import ConnectionError, ResponseError  # noqa: A004 - the one that kombu knows

from interlock.adapters.redis_client import end_waits, waiting_name
from interlock.errors import BrokerUnavailableError
from interlock.hint import RUN_TASK
from interlock.tier import Pool

RECONNECT_SECONDS_MAX = 2
REFUSED_SECONDS = 0.5
IDS_MAX = 1_024
"""Ids of one hint that are looked at; the sweep brings the others again."""

_LOG = logging.getLogger("interlock.pool")

TRANSPORT: Mapping[str, Any] = MappingProxyType(
    {
        # A hint that was taken is gone: the sweep brings it again, so nothing is gained by remembering it.
        "ack_emulation": False,
        "priority_steps": [0],
        "brpop_timeout": 1,
        "socket_timeout": 5,
        "socket_connect_timeout": 5,
    }
)

PINNED: Mapping[str, Any] = MappingProxyType(
    {
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_backend": None,
        "task_ignore_result": True,
        "task_acks_late": False,
        "task_reject_on_worker_lost": None,
        "task_retry_on_worker_lost": False,
        "task_time_limit": None,
        "task_soft_time_limit": None,
        "task_send_sent_event": False,
        "task_create_missing_queues": False,
        "worker_send_task_events": False,
        "worker_enable_remote_control": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_pool": "threads",
        "worker_max_tasks_per_child": None,
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_pool_acquire_timeout": 5,
        "broker_transport_options": dict(TRANSPORT),
    }
)


class SettingChangedError(Exception):
    """A setting that is pinned has another value, by the command line or the environment."""

    def __init__(self, name: str, value: object) -> None:
        super().__init__(f"{name} must be {PINNED[name]!r}, not {value!r}")
        self.name = name


class ServedPool(Protocol):
    """A pool process as Celery's worker uses it."""

    @property
    def slots(self) -> int:
        """How many hints it serves at once."""
        ...

    def begin(self) -> None:
        """Start what runs beside the hints; called in the main thread."""
        ...

    def ready(self) -> None:
        """Hints are consumed now."""
        ...

    def serve(self, invocation_ids: Sequence[str]) -> None:
        """Serve one hint."""
        ...

    def stop(self) -> None:
        """Claim nothing any more; may be called in a signal's Python code."""
        ...

    def close(self) -> int:
        """Everything has ended; the exit status."""
        ...


OpenPool = Callable[[str], ServedPool]


class PatientChannel(Channel):
    """kombu's channel, which survives what would end the worker: an item that is no message, and a broker
    that answers and refuses (its disk is full, it is loading), which is waited for like one that is away."""

    @property
    def client_name(self) -> str:  # type: ignore[override]  # kombu: only ever read there
        """Under which the server lists the connections of this process."""
        return waiting_name()

    def close(self) -> None:
        """Close; the rest of the time for which the server was asked to wait is nobody's."""
        if self._in_poll:  # type: ignore[attr-defined]  # kombu: stubs lack it
            with contextlib.suppress(BrokerUnavailableError), self.conn_or_acquire() as client:
                end_waits(client, self.client_name)
        super().close()

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]  # kombu: stubs lack it
        except ResponseError as error:
            threading.Event().wait(REFUSED_SECONDS)  # it connects at once, and would refuse at once again
            raise ConnectionError(f"the broker refuses: {error}") from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            _LOG.warning("dropped a queue item that is no message: %s", error)
            return True


class QuickConsumer(Consumer):
    """Celery's consumer, which comes back within seconds however long the broker was away."""

    def ensure_connected(self, conn: Connection) -> Connection:
        """The connection, tried again for as long as this worker lives."""

        def tell(error: Exception, _interval: float) -> None:
            if getattr(state, "should_stop", None) not in (None, False):
                raise error

        conn.transport.Channel = PatientChannel  # type: ignore[attr-defined]  # likewise
        # The waits are seconds, and may be fractions whatever the stubs say.
        waits: dict[str, Any] = {"max_retries": None, "interval_start": 0.2, "interval_step": 0.2}
        return conn.ensure_connection(tell, interval_max=RECONNECT_SECONDS_MAX, **waits)


class Alarm:
    """Wakes the worker's event loop from another thread, or from a signal's Python code."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def ring(self) -> None:
        """Let the loop turn once more."""
        with contextlib.suppress(BlockingIOError):  # full: it is about to turn anyway
            os.write(self._writing, b".")

    def join(self, hub: Hub) -> None:
        """Be heard by this loop."""
        hub.add_reader(self._reading, self._hear)

    def _hear(self, *_: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 4096)


class AlarmingThreads(ThreadPool):
    """Celery's threads, which wake the loop when one is free again.

    A loop without room asks the broker for nothing, and would find out by its own tick, up to a second later.
    """

    alarm: Alarm

    def on_apply(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Run in a thread, then ring."""
        result = super().on_apply(target, *args, **kwargs)
        result.f.add_done_callback(lambda _future: self.alarm.ring())
        return result


class PoolWorker(Worker):
    """Celery's own worker, bound to one pool."""

    app: PoolApp

    def __init__(self, **given: Any) -> None:
        self.served = self.app.open_pool(_pool_of(given.get("queues")))
        self.alarm = Alarm()
        fixed = {
            "pool_cls": type("PoolThreads", (AlarmingThreads,), {"alarm": self.alarm}),
            "concurrency": self.served.slots,
            "without_gossip": True,
            "without_mingle": True,
            "without_heartbeat": True,
            "optimization": None,
            "autoscale": None,
            "quiet": True,
        }
        require_pinned(self.app)
        self.app.bind(self.served, self.alarm)
        with warnings.catch_warnings():
            # It means an account without a name: ours has none, on purpose. And only JSON is accepted.
            warnings.simplefilter("ignore", SecurityWarning)
            super().__init__(**{**given, **fixed})

    def start(self) -> None:
        """Serve until told to stop; what runs is finished first."""
        self.served.begin()
        try:
            super().start()
        finally:
            status = self.served.close()
            self.exitcode = self.exitcode or status

    def register_with_event_loop(self, hub: Hub) -> None:
        """Every time a loop starts, which it does anew after a lost connection."""
        super().register_with_event_loop(hub)
        self.alarm.join(hub)

    def on_consumer_ready(self, consumer: Any) -> None:
        """Celery's own restart on SIGHUP would run the command line again, which need not be its own."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        super().on_consumer_ready(consumer)
        self.served.ready()


class PoolApp(Celery):
    """The app of the pools: one task, four queues."""

    open_pool: OpenPool

    @cached_property
    def Worker(self) -> type[PoolWorker]:  # noqa: N802 - Celery's name
        """The worker that its command line starts."""
        made: type[PoolWorker] = self.subclass_with_self(PoolWorker)
        return made

    def bind(self, served: ServedPool, alarm: Alarm) -> None:
        """Let this pool serve the app's hints, and stop with Celery's worker."""
        self._served = served
        self._alarm = alarm
        signals.worker_shutting_down.connect(self._stop, weak=False)

    def serve(self, invocation_ids: Sequence[str]) -> None:
        """What the task does."""
        self._served.serve(invocation_ids)

    def _stop(self, **_: Any) -> None:
        self._served.stop()
        self._alarm.ring()


def make_app(broker_url: str, open_pool: OpenPool) -> PoolApp:
    """The app; nothing is connected. `open_pool` is called in the main thread when a worker is made."""
    app = PoolApp("interlock", broker=broker_url, set_as_current=False)
    app.open_pool = open_pool
    app.conf.update(dict(PINNED))
    app.conf.worker_consumer = QuickConsumer
    app.conf.task_queues = [Queue(pool.queue, routing_key=pool.queue) for pool in Pool]
    app.conf.task_default_queue = Pool.PURE.queue

    @app.task(name=RUN_TASK, bind=False, shared=False)
    def run(ids: Any = None, **_: Any) -> None:
        # Whoever reaches the broker can write this; what it says is looked up before it means anything.
        named = [one for one in ids if isinstance(one, str)] if isinstance(ids, list) else []
        app.serve(named[:IDS_MAX])

    return app


def serve_pool(app: PoolApp, pool: str, hostname: str) -> int:
    """Be the worker of one pool in this, the main, thread, until SIGTERM; the exit status."""
    worker = app.Worker(queues=[Pool(pool).queue], hostname=hostname, loglevel="WARNING")
    worker.start()
    return int(worker.exitcode or 0)


def stop_worker() -> None:
    """Let this process's worker stop as on SIGTERM; from any thread."""
    setattr(state, "should_stop", 0)  # noqa: B010 - declared as None where it is defined


def require_pinned(app: Celery) -> None:
    """Raises SettingChangedError where a pinned setting does not hold."""
    for name, value in PINNED.items():
        if app.conf[name] != value:
            raise SettingChangedError(name, app.conf[name])


def _pool_of(queues: Any) -> str:
    """The one pool that these queues belong to; raises ValueError for none or several."""
    names = queues.split(",") if isinstance(queues, str) else list(queues or ())
    found = [pool.value for pool in Pool if pool.queue in names]
    if len(found) != 1 or len(names) != 1:
        raise ValueError("start a worker for exactly one pool: -Q interlock.pool.pure|fs|shell|network")
    return found[0]
