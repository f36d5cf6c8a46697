"""One pool process, composed: what it is made of, in which order it is made, and how it ends.

The order matters: boot lock, sandbox proof and spawner come before any thread, any store and Celery. Decides
nothing itself, and chooses no store: what it is connected to is handed in.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from governance.catalogue import builtin_tools
from governance.contract_store import ContractStore
from governance.execution import Claimant, Execution, Unseal
from governance.ledger import Ledger
from governance.line import Line
from interlock.clock import Clock
from interlock.collection import collect_seldom
from interlock.fault import FaultPoints
from interlock.hint import HintPublisher, Waker
from interlock.receipt import SandboxReport
from interlock.seal import SealVerifier, Signer
from interlock.settings import Settings
from interlock.tier import Pool
from workers.adapters.tenacity_insist import TenacityInsist
from workers.claim import Claiming, Drops
from workers.deliver import Delivery
from workers.lease import Lease, is_boot_alive
from workers.recover import Recovery
from workers.report import Reporting, Schemas
from workers.run import BuiltinToolset, Running
from workers.serve import Serving
from workers.spool import ORPHANS, Spool
from workers.supervisor.port import NotStarted
from workers.supervisor.probe import find_sandbox
from workers.supervisor.profile import EgressEntry
from workers.supervisor.profile import Settings as SpawnerSettings
from workers.supervisor.spawned import SpawnedSupervisor
from workers.supervisor.spawner import start_spawner

END_RUNNING_SECONDS = 8.0
"""How long what runs may go on in a pool that stops; then it is ended, and its outcome recorded."""
STOP_GRACE_SECONDS = 5.0
"""How long a stopping pool goes on after that trying to write an outcome that is spooled already."""
WATCH_SECONDS = 0.5
EXIT_FAILED = 1

_LOG = logging.getLogger("interlock.pool")


class Stop(Protocol):
    """Set once, by whoever ends the process."""

    def set(self) -> None:
        """Say that the process is to end; safe in a signal's Python code."""
        ...

    def is_set(self) -> bool:
        """Whether it is to end."""
        ...


class PlainStop:
    """A stop without waiting: setting it takes no lock, so a signal's Python code may."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pool of the embedded system finds what it needs, below the data directory."""

    data: Path

    @property
    def boots(self) -> Path:
        return self.data / "run" / "boots"

    @property
    def spool(self) -> Path:
        return self.data / "spool"

    @property
    def workspaces(self) -> Path:
        return self.data / "workspaces"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a pool process is connected to. Opened after the spawner was forked."""

    ledger: Ledger
    publisher: HintPublisher
    waker: Waker
    signer: Signer
    verifier: SealVerifier
    unseal: Unseal
    clock: Clock
    faults: FaultPoints


OpenParts = Callable[[], Parts]


class PoolProcess:
    """One life of one pool. `begin`, `ready` and `close` belong to the main thread, `serve` to any."""

    def __init__(
        self,
        pool: str,
        place: Place,
        settings: Settings,
        environment: Mapping[str, str],
        open_parts: OpenParts,
        *,
        tell_ready: Callable[[], None],
        stop: Stop,
        stop_worker: Callable[[], None],
    ) -> None:
        self.slots = settings.slots(pool)
        self._pool = pool
        self._place = place
        self._settings = settings
        self._tell_ready = tell_ready
        self._stop = stop
        self._stop_worker = stop_worker
        self._has_failed = False
        self._ended = threading.Event()
        self._given_up = threading.Event()
        self._must_end = threading.Event()
        self._mender: threading.Thread | None = None
        self._lease = Lease(place.boots, f"pool.{pool}")
        self._supervisor, report = self._start_supervisor(environment)
        self._parts = open_parts()
        self._spool = None if pool == Pool.PURE.value else Spool(place.spool, self._lease.boot_id, self.slots)
        self.serving = self._compose(report)

    def _start_supervisor(
        self, environment: Mapping[str, str]
    ) -> tuple[SpawnedSupervisor | None, SandboxReport]:
        """The pure pool runs built-ins only, and needs neither sandbox nor spawner."""
        if self._pool == Pool.PURE.value:
            return None, SandboxReport()
        sandbox = find_sandbox()
        if isinstance(sandbox, NotStarted):
            _LOG.error("tools of this pool cannot run: %s: %s", sandbox.code, sandbox.message)
        orphans = self._place.spool / ORPHANS
        orphans.mkdir(mode=0o700, parents=True, exist_ok=True)
        egress = egress_from(environment) if self._pool == Pool.NETWORK.value else ()
        supervisor = start_spawner(SpawnerSettings(sandbox, egress, orphans, self._lease.lock_fd))
        if isinstance(sandbox, NotStarted):
            return supervisor, SandboxReport()
        held = sandbox.report
        return supervisor, SandboxReport(strength=held.strength, layers=held.layers)

    def _compose(self, report: SandboxReport) -> Serving:
        parts, settings = self._parts, self._settings
        worker = f"{self._pool}@{socket.gethostname()}:{os.getpid()}"
        execution = Execution(
            parts.ledger, Line(settings), parts.publisher, parts.waker, settings, parts.faults, parts.unseal
        )
        self._execution = execution
        contracts = ContractStore(parts.ledger)
        toolset = BuiltinToolset({tool.qualified_name: tool.digest for tool in builtin_tools()}, report)
        claimant = Claimant(worker, self._lease.boot_id, self._pool)
        reporting = Reporting(parts.signer, worker, settings, parts.clock.now_us, Schemas())
        is_alive = partial(is_boot_alive, self._place.boots)
        return Serving(
            pool=self._pool,
            execution=execution,
            claiming=Claiming(execution, claimant, contracts, toolset, parts.verifier, Drops()),
            running=Running(
                execution,
                self._supervisor,
                self._place.workspaces,
                parts.faults,
                self._is_stopping,
                must_end=self._must_end.is_set,
            ),
            reporting=reporting,
            delivery=Delivery(execution, self._spool, TenacityInsist(self._given_up), parts.faults),
            recovery=Recovery(execution, reporting, contracts, self._place.spool, is_alive),
            settings=settings,
            faults=parts.faults,
            is_stopping=self._is_stopping,
            stop_failed=self._fail,
        )

    # --- what Celery's worker calls ----------------------------------------------------------------

    def begin(self) -> None:
        """First beat, then the outcomes of the dead, then whatever goes on beside the hints.

        Raises LedgerUnavailableError where the first beat cannot be written.
        """
        collect_seldom()
        self._lease.begin(self._execution.beat, self._parts.clock.now_us(), self._settings.beat_ms)
        self.serving.mend()
        self._mender = threading.Thread(target=self._mend, name="mend", daemon=True)
        self._mender.start()

    def ready(self) -> None:
        """Hints are consumed now."""
        self._tell_ready()

    def serve(self, invocation_ids: Sequence[str]) -> None:
        """Serve one hint."""
        self.serving.serve(invocation_ids)

    def stop(self) -> None:
        """Claim nothing any more; what runs is finished."""
        self._stop.set()

    def close(self) -> int:
        """End what this process began; the exit status."""
        self._stop.set()
        self._ended.set()
        self._given_up.set()
        if self._mender is not None:
            self._mender.join()
        if self._supervisor is not None:
            self._supervisor.close()
        self._lease.end()
        if self._spool is not None:
            self._spool.close()
        self._parts.ledger.close()
        return EXIT_FAILED if self._has_failed else 0

    # --- beside the hints --------------------------------------------------------------------------

    def _is_stopping(self) -> bool:
        return self._stop.is_set()

    def _fail(self) -> None:
        self._has_failed = True
        self._stop.set()
        self._stop_worker()

    def _mend(self) -> None:
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        self.serving.mend_until(self._ended)

    def _watch(self) -> None:
        """Notice a stop that came by another way than Celery's, and a spawner that died."""
        # By its process: a supervisor that stands by keeps the spawner's line open beyond its death.
        spawner = None if self._supervisor is None else os.pidfd_open(self._supervisor.spawner_pid)
        while not self._ended.wait(WATCH_SECONDS):
            if spawner is not None and has_ended(spawner):
                _LOG.error("the spawner of this pool is gone")
                self._fail()
            if self._stop.is_set():
                self._stop_worker()
                self._end_what_runs()
                return

    def _end_what_runs(self) -> None:
        if self._ended.wait(END_RUNNING_SECONDS):
            return
        _LOG.warning("this pool stops: what still runs is ended")
        self._must_end.set()
        if not self._ended.wait(STOP_GRACE_SECONDS):
            self._given_up.set()


def has_ended(pidfd: int) -> bool:
    """Whether the process behind this descriptor has ended."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def egress_from(environment: Mapping[str, str]) -> tuple[EgressEntry, ...]:
    """What `INTERLOCK_EGRESS` lists: `host:port`, or `host:port@network+network` for addresses that are not
    public, separated by commas. Raises ValueError."""
    entries = [item.strip() for item in environment.get("INTERLOCK_EGRESS", "").split(",") if item.strip()]
    return tuple(_egress_entry(item) for item in entries)


def _egress_entry(item: str) -> EgressEntry:
    address, _, networks = item.partition("@")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"INTERLOCK_EGRESS: {item!r} is no host:port")
    return EgressEntry(host, int(port), tuple(part for part in networks.split("+") if part))
