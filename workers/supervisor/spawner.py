"""The spawner: one small single-threaded process that forks a supervisor for each call.

It is forked from the pool's main thread before Celery is imported or a store is opened, so nothing of
either is in any supervisor. It never sees a call or an outcome; those go between pool and supervisor.
"""

from __future__ import annotations

import array
import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from types import TracebackType

from workers.supervisor.channel import CALL, GO, NO, OUTCOME, READY, STOP, TAKEN, Channel, LineClosedError
from workers.supervisor.port import BeforeEffect, Call, Failed, NotStarted, Outcome, ShouldStop
from workers.supervisor.profile import Settings
from workers.supervisor.report import decode_outcome, encode_call
from workers.supervisor.supervise import get_ready, supervise
from workers.supervisor.tree import die_with_parent
from workers.supervisor.watch import TICK_MS
from workers.tools.fetch import Fetch

POOL_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RETRY_MS = 100


class SpawnedSupervisor:
    """The pool's side: carries out calls through the spawner. Safe for threads and for forked pools."""

    def __init__(self, control: socket.socket, spawner_pid: int) -> None:
        self._control = control
        self.spawner_pid = spawner_pid

    def execute(
        self, call: Call, should_stop: ShouldStop, before_effect: BeforeEffect | None = None
    ) -> Outcome:
        """See `Supervisor.execute`. Without a living spawner the outcome is NotStarted."""
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                if not _send_line(self._control, theirs):
                    return NotStarted(
                        "SUPERVISOR_LOST", "the pool's spawner is gone; the pool must be restarted"
                    )
            return _Conversation(Channel(mine), should_stop, before_effect).outcome_of(call)

    def is_alive(self) -> bool:
        """Whether the spawner still takes requests; a pool whose spawner is gone has to end."""
        poller = select.poll()
        poller.register(self._control, 0)
        return not poller.poll(0)

    def close(self) -> None:
        """Lets the spawner end. Executions that run go on to their end."""
        self._control.close()

    def __enter__(self) -> SpawnedSupervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        os.waitpid(self.spawner_pid, 0)


class _Conversation:
    """One call's exchange with its supervisor."""

    def __init__(self, channel: Channel, should_stop: ShouldStop, before_effect: BeforeEffect | None) -> None:
        self._channel = channel
        self._should_stop = should_stop
        self._before_effect = before_effect
        self._has_gone = False
        self._reason: str | None = None
        self._has_stopped = False

    def outcome_of(self, call: Call) -> Outcome:
        try:
            self._channel.send(CALL, call=encode_call(call))
            while True:
                frame = self._channel.receive(TICK_MS)
                if frame is None:
                    forbidden = self._tick(call)
                    if forbidden is not None:
                        return forbidden
                elif frame["frame"] == READY:
                    self._answer_ready()
                elif frame["frame"] == OUTCOME:
                    return self._taken(decode_outcome(frame["outcome"]))
        except LineClosedError:
            return self._lost()

    def _answer_ready(self) -> None:
        self._reason = self._reason or self._should_stop()
        if self._reason is not None:
            self._channel.send(NO, code="CANCELLED_BEFORE_START", reason=self._reason)
        elif self._before_effect is not None and not self._before_effect():
            self._channel.send(NO, code="CLAIM_LOST", reason="the claim did not stand just before the effect")
        else:
            self._has_gone = True
            self._channel.send(GO)

    def _tick(self, call: Call) -> NotStarted | None:
        self._reason = self._reason or self._should_stop()
        if not self._has_gone:
            # Without GO nothing begins, so whoever has the line by now may be left alone with it.
            return self._forbidden(call)
        if self._reason is not None and not self._has_stopped:
            self._has_stopped = True
            self._channel.send(STOP, reason=self._reason)
        return None

    def _forbidden(self, call: Call) -> NotStarted | None:
        if self._reason is not None:
            return NotStarted("CANCELLED_BEFORE_START", self._reason)
        if time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= call.start_by_boottime_ns:
            return NotStarted("START_BY_PASSED", "no supervisor was ready in time")
        return None

    def _taken(self, outcome: Outcome) -> Outcome:
        try:
            self._channel.send(TAKEN)
        except LineClosedError:
            return outcome  # We have it, whatever became of the one who brought it.
        return outcome

    def _lost(self) -> Outcome:
        if self._has_gone:
            return Failed("SUPERVISOR_LOST", "the supervisor ended without an outcome", began=True)
        return NotStarted("SUPERVISOR_LOST", "the supervisor ended before the effect could begin")


def start_spawner(settings: Settings) -> SpawnedSupervisor:
    """Forks the spawner and gives the pool's side of it.

    Call it once, in the main thread of a process that has dropped its privileges and started no thread.
    """
    if threading.active_count() != 1 or threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the spawner is forked from the main thread, before any other is started")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pool_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        _spawner_process(theirs, settings, pool_pid)
    theirs.close()
    return SpawnedSupervisor(ours, pid)


def _spawner_process(control: socket.socket, settings: Settings, pool_pid: int) -> None:
    code = 1
    try:
        # Nothing of the pool's may be collected here: its descriptors' numbers belong to others by now.
        gc.disable()
        gc.freeze()
        die_with_parent(pool_pid)
        _forget_the_pool(control, settings)
        fetch = _load_fetch() if settings.egress else None
        _serve(control, settings, fetch)
        code = 0
    except BaseException:  # noqa: BLE001 - the root of a process: nothing may return into the pool's code
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _forget_the_pool(control: socket.socket, settings: Settings) -> None:
    """Keeps the control line, the liveness lock and stderr; drops every other descriptor and signal."""
    signal.set_wakeup_fd(-1)
    # A signal to the pool's group is for the pool: the spawner ends with the control line, or with the pool.
    for number in POOL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # The kernel reaps supervisors; the pool learns of their end by their line.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    kept = {0, 1, 2, control.fileno()} | ({settings.lock_fd} if settings.lock_fd is not None else set())
    _close_all_but(kept)
    for fd in kept - {0, 1, 2}:
        os.set_inheritable(fd, False)


def _close_all_but(kept: Iterable[int]) -> None:
    edges = sorted(kept)
    for low, high in zip(edges, [*edges[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def _load_fetch() -> Fetch:
    # Only a pool that lists hosts pays for the client, and it pays once.
    from workers.adapters.http_fetch import fetch

    return fetch


def _serve(control: socket.socket, settings: Settings, fetch: Fetch | None) -> None:
    """Keeps one supervisor standing by: it takes the next line from the pool itself, then another is forked.

    A fork takes longer than to wake a process, so whoever is asked is there already.
    """
    while True:
        taken = _fork_standby(control, settings, fetch)
        if taken is None or not _was_taken(taken):
            if _is_hung_up(control):
                return
            # No process to be had, or one that died before it was asked: not again at once.
            select.select([], [], [], RETRY_MS / 1000)


def _was_taken(taken: int) -> bool:
    """Waits until the supervisor that stands by has taken a line; False when it ended without one."""
    with open(taken, "rb", buffering=0) as pipe:
        return bool(pipe.read(1))


def _is_hung_up(control: socket.socket) -> bool:
    try:
        return not control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


def _fork_standby(control: socket.socket, settings: Settings, fetch: Fetch | None) -> int | None:
    """Forks a supervisor; gives the end of a pipe on which it says that it was taken, None without it."""
    taken, taken_end = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(taken)
        pid = -1
    if pid == 0:
        os.close(taken)
        _supervisor_process(control, taken_end, settings, fetch)
    os.close(taken_end)
    return taken if pid > 0 else None


def _supervisor_process(
    control: socket.socket, taken_end: int, settings: Settings, fetch: Fetch | None
) -> None:
    code = 1
    try:
        for number in (signal.SIGCHLD, *POOL_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        ready = get_ready(settings, fetch)
        line = _receive_line(control)
        control.close()
        if line is not None:
            os.write(taken_end, b"!")
            os.close(taken_end)
            supervise(Channel(line), ready)
        code = 0
    except BaseException:  # noqa: BLE001 - the root of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _send_line(control: socket.socket, line: socket.socket) -> bool:
    """Hands the supervisor's end of a line over; False when nobody is there to take it."""
    rights = array.array("i", [line.fileno()])
    try:
        control.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    except OSError:
        return False
    return True


def _receive_line(control: socket.socket) -> socket.socket | None:
    """The next line; None when the pool has hung up."""
    size = socket.CMSG_SPACE(array.array("i").itemsize)
    knock, ancillary, _, _ = control.recvmsg(1, size, socket.MSG_CMSG_CLOEXEC)
    if not knock or not ancillary:
        return None
    return socket.socket(fileno=array.array("i", ancillary[0][2])[0])
