"""Forks one role off the parent: own session, own log, default signals, dead as soon as the parent is.

Decides nothing: when a role starts, restarts or stops is the tree's to say.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded import kernel
from gateway.embedded.directory import DataDirectory
from gateway.embedded.role import Role, RoleContext, Stopping
from interlock.errors import InterlockError

LOG_BYTES_MAX = 8 * 2**20  # looked at when a role starts
EXIT_CRASHED = 70
USED_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGPIPE,
)
# As Python does, so that a closed pipe is an exception; and a role has no terminal that could hang up.
IGNORED_SIGNALS = (signal.SIGPIPE, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class ForkedRole:
    """A started role: its process, and the descriptor that becomes readable when it is ready or gone."""

    pid: int
    ready_descriptor: int


def fork_role(role: Role, directory: DataDirectory, parents_only: Iterable[int]) -> ForkedRole:
    """Start `role` in a child of its own; `parents_only` are descriptors that it must not keep.

    To be called from the main thread of a process with no other: the kernel ends the child together with
    the thread that forked it, and a lock held by another thread would stay locked in the child for ever.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    # A signal between the fork and the child's own reactions would run the parent's code in the child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, USED_SIGNALS)
    child = os.fork()
    if child == 0:
        _run_as_child(role, directory, parent, (*parents_only, reading), writing)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(writing)
    return ForkedRole(child, reading)


def _run_as_child(
    role: Role, directory: DataDirectory, parent: int, parents_only: Iterable[int], ready_descriptor: int
) -> None:
    """In the child: run the role and end with its status; never returns."""
    status = EXIT_CRASHED
    try:
        stopping = _settle(role, directory, parent, parents_only)
        status = role.start(RoleContext(role.name, directory, stopping, ready_descriptor))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except InterlockError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the log of a role has no other way in here
    except BaseException:  # noqa: BLE001 - the composition root of a process: it is said and counted there
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # what the parent registered for its own end is none of the child's


def _settle(role: Role, directory: DataDirectory, parent: int, parents_only: Iterable[int]) -> Stopping:
    os.setsid()  # Ctrl-C in the terminal reaches the foreground process only, which stops in order
    kernel.die_with_parent(parent)
    kernel.set_process_name(f"il-{role.name}")
    signal.set_wakeup_fd(-1)
    for descriptor in parents_only:
        os.close(descriptor)
    for number in USED_SIGNALS:
        signal.signal(number, signal.SIG_IGN if number in IGNORED_SIGNALS else signal.SIG_DFL)
    stopping = Stopping()
    stopping.listen(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, USED_SIGNALS)
    _redirect(directory.log_of(role.name))
    return stopping


def _redirect(log: Path) -> None:
    """Nothing from the terminal, everything said into the log."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(written)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the life of the process
    sys.stdout = _line_writer(1)
    sys.stderr = _line_writer(2)


def _line_writer(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
