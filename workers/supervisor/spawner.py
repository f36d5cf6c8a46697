"""The spawner: one small single-threaded process that forks a supervisor for each call.

It is forked from the pool's main thread before Celery is imported or a store is opened, so nothing of
either is in any supervisor. It never sees a call or an outcome; those go between pool and supervisor.
What a supervisor that was killed leaves behind comes to the spawner, which ends it.
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
from collections.abc import Iterable

from workers.supervisor.channel import Channel
from workers.supervisor.profile import Settings
from workers.supervisor.spawned import SpawnedSupervisor
from workers.supervisor.supervise import get_ready, supervise
from workers.supervisor.tree import adopt_orphans, die_with_parent, end_strays
from workers.tools.fetch import Fetch

POOL_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RETRY_MS = 100
_SERVING = b"+"


class SpawnerError(RuntimeError):
    """The spawner ended before it served; what went wrong is on its stderr."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"the spawner, process {pid}, ended before it served")
        self.pid = pid


def start_spawner(settings: Settings) -> SpawnedSupervisor:
    """Forks the spawner and gives the pool's side of it.

    Call it once, in the main thread of a process that has dropped its privileges and started no thread.
    Raises SpawnerError when the spawner cannot serve.
    """
    if threading.active_count() != 1 or threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the spawner is forked from the main thread, before any other is started")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pool_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        _spawner_process(theirs, settings, pool_pid)
    theirs.close()
    # Until it says so, it still holds what it inherited, and a signal to the group would end it.
    if ours.recv(1) != _SERVING:
        raise SpawnerError(pid)
    return SpawnedSupervisor(ours, pid)


class _Spawner:
    """Keeps one supervisor standing by: it takes the next line from the pool itself, then another is forked.

    A fork takes longer than to wake a process, so whoever is asked is there already.
    """

    def __init__(self, control: socket.socket, settings: Settings) -> None:
        self._control = control
        self._settings = settings
        self._fetch = _load_fetch() if settings.egress else None
        self._supervisors: set[int] = set()
        self._deaths, self._deaths_end = os.pipe()

    def serve(self) -> None:
        """Returns when the pool has hung up."""
        adopt_orphans()
        for fd in (self._deaths, self._deaths_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._deaths_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._control.send(_SERVING)
        while True:
            taken = self._fork_standby()
            if (taken is None or not self._is_taken(taken)) and self._is_hung_up():
                return

    def _fork_standby(self) -> int | None:
        """The end of a pipe on which the forked supervisor says that it was taken; None without a fork."""
        taken, taken_end = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            os.close(taken)
            self._be_supervisor(taken_end)
        os.close(taken_end)
        if pid < 0:
            os.close(taken)
            return None
        self._supervisors.add(pid)
        return taken

    def _is_taken(self, taken: int) -> bool:
        """Waits until the one standing by has taken a line; False when it ended without one."""
        poller = select.poll()
        poller.register(taken, select.POLLIN)
        poller.register(self._deaths, select.POLLIN)
        with open(taken, "rb", buffering=0) as pipe:
            while True:
                ready = {fd for fd, _ in poller.poll()}
                if self._deaths in ready:
                    os.read(self._deaths, 4096)
                    end_strays(self._supervisors)
                if taken in ready:
                    return bool(pipe.read(1))

    def _is_hung_up(self) -> bool:
        """Asked after a supervisor could not be had; waits a little, so as not to fork in circles."""
        poller = select.poll()
        poller.register(self._control, select.POLLRDHUP)
        return bool(poller.poll(RETRY_MS))

    def _be_supervisor(self, taken_end: int) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, *POOL_SIGNALS):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._deaths)
            os.close(self._deaths_end)
            ready = get_ready(self._settings, self._fetch)
            line = _receive_line(self._control)
            self._control.close()
            if line is not None:
                os.write(taken_end, b"!")
                os.close(taken_end)
                supervise(Channel(line), ready)
            code = 0
        except BaseException:  # noqa: BLE001 - the root of a process
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)


def _spawner_process(control: socket.socket, settings: Settings, pool_pid: int) -> None:
    code = 1
    try:
        # Nothing of the pool's may be collected here: its descriptors' numbers belong to others by now.
        gc.disable()
        gc.freeze()
        die_with_parent(pool_pid)
        _forget_the_pool(control, settings)
        _Spawner(control, settings).serve()
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


def _receive_line(control: socket.socket) -> socket.socket | None:
    """The next line; None when the pool has hung up."""
    size = socket.CMSG_SPACE(array.array("i").itemsize)
    knock, ancillary, _, _ = control.recvmsg(1, size, socket.MSG_CMSG_CLOEXEC)
    if not knock or not ancillary:
        return None
    return socket.socket(fileno=array.array("i", ancillary[0][2])[0])
