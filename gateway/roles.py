"""The composition roots: one function a role, each building its process from the parts it needs.

Nothing is decided here; every role runs until it is told to stop, and ends when one of its loops does.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from gateway.claimant import lock_probe
from gateway.embedded.directory import DataDirectory
from gateway.embedded.ledger_note import note_server
from gateway.embedded.role import RoleContext
from gateway.parts import Parts, kids_of
from governance.adapters.celery_reception import CeleryReception
from governance.adapters.redis_intake import RedisIntake
from governance.anchor import AnchorWriter, gone_since
from governance.client_queue import ClientQueues
from governance.council import Council
from governance.decide import Clerk
from governance.follow import Follow
from governance.gate import Gate, default_steps
from governance.governor import Governor
from governance.grant import Grant
from governance.installation import POLICY, install
from governance.keys import KeyPurpose
from governance.ledger import Ledger
from governance.line import Line
from governance.propose import Propose
from governance.sensitive import opened_arguments
from governance.toolbox import Toolbox
from interlock.adapters.celery_hints import CeleryHintPublisher
from interlock.adapters.ed25519 import Ed25519KeyRing, is_signed_by, kid_of
from interlock.adapters.redis_client import connect, end_waits, waiting_name
from interlock.adapters.redis_stream import RedisProjectionNotice
from interlock.adapters.request_queue import RequestQueue
from interlock.errors import BrokerUnavailableError
from interlock.proposal import DECIDE_QUEUE, PROPOSE_QUEUE
from interlock.seal import Purpose, SealVerifier
from interlock.stream import EventStream
from interlock.tier import Pool
from scheduler.dispatch import Dispatch
from scheduler.lease_watch import LeaseWatch
from scheduler.lost import Lost
from scheduler.relay import Relay, fence_of
from scheduler.sweep import Sweep
from workers.lease import Lease, is_boot_alive
from workers.pool import Parts as PoolParts
from workers.pool import Place, PoolProcess, Stop
from workers.project import ProjectSettings, StreamProjector

logger = logging.getLogger("interlock")

SWEEP_SECONDS = 0.5
NUDGE_SECONDS = 0.05
EXIT_FENCED = 4
EXIT_LOOP_ENDED = 5


def set_up(parts: Parts) -> None:
    """What a start records before any role runs: keys, ledger, own tools, operator."""
    with _alone(parts.directory):
        parts.make_keys()
        ledger = parts.ledger(create=True)
        try:
            note_server(parts.directory, ledger.info.incarnation)
            public = parts.public_keys()
            install(ledger, public, kids_of(public))
        finally:
            ledger.close()


@contextmanager
def _alone(directory: DataDirectory) -> Iterator[None]:
    """One process of a directory at a time: several roles may be started at once."""
    descriptor = os.open(directory.run / "set-up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def run_governor(context: RoleContext, parts: Parts) -> int:
    """Takes proposals and decisions."""
    ledger, stream = parts.ledger(), parts.stream()
    behind = _what_is_gone(parts, ledger, stream)
    if behind is not None:
        logger.error("LEDGER_FENCED: %s", behind)
        return EXIT_FENCED
    lease = Lease(parts.directory.boots, "governor")
    publisher, waker = CeleryHintPublisher(parts.directory.broker_url), parts.waker()
    line, toolbox, sealer = Line(parts.settings), Toolbox(ledger), parts.sealer()
    gate = Gate(default_steps(), POLICY)
    clerk = Clerk(parts.signer(KeyPurpose.GOVERNANCE), parts.settings)
    reception = CeleryReception(ledger)
    governor = Governor(
        intake_of(parts, PROPOSE_QUEUE, lease.boot_id, ClientQueues(ledger)),
        reception.read_proposals,
        Propose(ledger, toolbox, gate, clerk, line, sealer, parts.faults),
        ledger,
        publisher,
        waker,
        parts.faults,
    )
    council = Council(
        intake_of(parts, DECIDE_QUEUE, lease.boot_id),
        reception.read_request,
        # A toolbox belongs to one thread.
        Grant(ledger, Toolbox(ledger), gate, clerk, line, sealer, parts.faults),
        ledger,
        line,
        is_signed_by,
        CeleryHintPublisher(parts.directory.broker_url),
        parts.waker(),
        parts.faults,
    )

    def is_dead(boot_id: str) -> bool:
        return not is_boot_alive(parts.directory.boots, boot_id)

    poll_seconds = parts.settings.poll_ms / 1_000
    proposals = Follow(governor.intake, governor.handle, parts.settings.intake_max, poll_seconds, is_dead)
    decisions = Follow(council.intake, council.handle, parts.settings.intake_max, poll_seconds, is_dead)
    return _run_loops(
        context,
        {
            "propose": lambda: proposals.run(context.stopping),
            "decide": lambda: decisions.run(context.stopping),
        },
    )


def _what_is_gone(parts: Parts, ledger: Ledger, stream: EventStream) -> str | None:
    """What the stream or an anchor knows and the ledger does not: it went back; nothing may be decided."""
    fence = fence_of(ledger, stream)
    if fence is not None:
        return fence.reason
    public = parts.public_keys()[KeyPurpose.ANCHOR]
    verifier = SealVerifier(Ed25519KeyRing({kid_of(public): public}), Purpose.ANCHOR)
    with ledger.read() as view:
        return gone_since(view, ledger.info.incarnation, [parts.directory.anchors], verifier)


def intake_of(
    parts: Parts, queue: str, boot_id: str, own_queues: Callable[[], Sequence[str]] = tuple
) -> RedisIntake:
    """One loop's way into a queue, and into those that are clients' own, with lists of its own."""
    url = parts.directory.broker_client_url
    waiting = connect(url, blocking=True, name=waiting_name())
    return RedisIntake(connect(url), waiting, queues=(queue,), own_queues=own_queues, boot=boot_id)


def run_scheduler(context: RoleContext, parts: Parts) -> int:
    """Relays events, and wakes whatever is due."""
    ledger = parts.ledger()
    anchors = AnchorWriter(
        [parts.directory.anchors], parts.signer(KeyPurpose.ANCHOR), ledger.info.incarnation, parts.clock
    )
    relay = Relay(
        ledger,
        parts.stream(),
        parts.waker(),
        parts.faults,
        anchor=anchors.anchor,
        sequencer=parts.sequencer(ledger),
    )
    sweep = sweep_of(parts, ledger, CeleryHintPublisher(parts.directory.broker_url))
    ended = threading.Event()
    return _run_loops(
        context,
        {
            "relay": lambda: relay.run(ended),
            "sweep": lambda: sweep.run(context.stopping, SWEEP_SECONDS),
        },
        ended=ended,
    )


def sweep_of(parts: Parts, ledger: Ledger, publisher: CeleryHintPublisher) -> Sweep:
    """The sweep over one ledger."""
    line = Line(parts.settings)
    return Sweep(
        ledger,
        Dispatch(ledger, line, parts.settings),
        Lost(ledger, line, parts.settings, parts.faults),
        LeaseWatch(parts.settings.lease_ms, parts.settings.beat_ms, lock_probe(parts.directory)),
        publisher,
        publisher.queued_ids,
        RequestQueue.at(parts.directory.broker_client_url).review,
        parts.settings,
        parts.faults,
    )


def run_projector(context: RoleContext, parts: Parts) -> int:
    """Folds events into views."""
    projector = StreamProjector(
        parts.ledger(),
        parts.stream(),
        parts.projection(),
        parts.faults,
        notice=RedisProjectionNotice(connect(parts.directory.broker_client_url)),
        # A name of its own: one that takes over reads beside the one that it replaces.
        settings=ProjectSettings(reader=f"{context.name}:{socket.gethostname()}:{os.getpid()}"),
    )
    ended = threading.Event()
    return _run_loops(context, {"project": lambda: projector.run(ended)}, ended=ended)


def run_pool_role(context: RoleContext, parts: Parts, pool: Pool, environment: Mapping[str, str]) -> int:
    """Executes what one pool is for."""
    # Made before Celery is imported: nothing of it, nor of a store, is in the spawner.
    process = pool_process(parts, pool, environment, tell_ready=context.ready, stop=context.stopping)
    from workers.adapters.celery_pool import make_app, serve_pool

    app = make_app(parts.directory.broker_url, lambda _name: process)
    return serve_pool(app, pool.value, f"interlock-{context.name}@{socket.gethostname()}")


def pool_process(
    parts: Parts, pool: Pool, environment: Mapping[str, str], *, tell_ready: Callable[[], None], stop: Stop
) -> PoolProcess:
    """One pool process, not begun. In the main thread, before any other is started."""
    return PoolProcess(
        pool.value,
        Place(parts.directory.path),
        parts.settings,
        environment,
        partial(pool_parts, parts),
        tell_ready=tell_ready,
        stop=stop,
        stop_worker=_stop_worker,
    )


def pool_parts(parts: Parts) -> PoolParts:
    """What a pool process is connected to. Opened after its spawner was forked."""
    public, sealer = parts.public_keys()[KeyPurpose.GOVERNANCE], parts.sealer()
    return PoolParts(
        ledger=parts.ledger(),
        publisher=CeleryHintPublisher(parts.directory.broker_url),
        waker=parts.waker(),
        signer=parts.signer(KeyPurpose.POOL),
        verifier=SealVerifier(Ed25519KeyRing({kid_of(public): public}), Purpose.PERMIT),
        unseal=lambda stored, pointers, identifier: opened_arguments(stored, pointers, sealer, identifier),
        clock=parts.clock,
        faults=parts.faults,
    )


def _stop_worker() -> None:
    # Celery is there by the time anything stops, and must not be before the spawner is.
    from workers.adapters.celery_pool import stop_worker

    stop_worker()


def _run_loops(
    context: RoleContext, loops: Mapping[str, Callable[[], object]], *, ended: threading.Event | None = None
) -> int:
    """Run each loop in a thread until the stop; one that ends before it ends the process."""
    over = ended or threading.Event()
    failed: list[str] = []

    def run(name: str, loop: Callable[[], object]) -> None:
        try:
            loop()
        except Exception:
            logger.exception("the loop %s of %s ended", name, context.name)
        if not context.stopping.is_set():
            failed.append(name)
            context.stopping.set()

    threads = [threading.Thread(target=run, args=item, name=item[0]) for item in loops.items()]
    for thread in threads:
        thread.start()
    context.ready()
    context.stopping.wait()
    over.set()
    _see_out(threads, context.directory.broker_client_url)
    return EXIT_LOOP_ENDED if failed else 0


def _see_out(threads: Collection[threading.Thread], broker_url: str) -> None:
    """Wait for the loops to end; what they wait for in the broker is over at once."""
    client = connect(broker_url)
    with suppress(BrokerUnavailableError):
        for thread in threads:
            thread.join(NUDGE_SECONDS)
            while thread.is_alive():
                end_waits(client, waiting_name())
                thread.join(NUDGE_SECONDS)
    client.close()
    for thread in threads:
        thread.join()
