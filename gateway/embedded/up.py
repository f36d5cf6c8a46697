"""Starts the embedded system and stays in the foreground until it ends.

This process holds the terminal and nothing else: it passes stop signals on to the process tree below it.
Either of the two ends everything that was started when the other is killed, what left its session included.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping

from gateway.embedded import kernel
from gateway.embedded.account import settle_account
from gateway.embedded.adapters.valkey import find_server
from gateway.embedded.broker import BrokerSettings, become_server, is_ready
from gateway.embedded.directory import DataDirectory, prepare, remove_short_folder
from gateway.embedded.member import BACKOFF_SECONDS_MAX
from gateway.embedded.ready import withdraw_ready
from gateway.embedded.remains import end_all
from gateway.embedded.role import STOP_BROKER, Role, RoleContext
from gateway.embedded.start_lock import StartLock
from gateway.embedded.tree import (
    EXIT_OWNER_DIED,
    LEFTOVER_SECONDS,
    OWNER_DIED_SIGNAL,
    STOP_SIGNALS,
    ProcessTree,
)

BROKER_ROLE = "broker"


def print_line(line: str) -> None:
    """One line on standard output, at once."""
    print(line, flush=True)  # noqa: T201 - the one line that a start says


def up(
    directory: DataDirectory,
    roles: Iterable[Role],
    preload: Callable[[], None],
    environment: Mapping[str, str],
    *,
    version: str,
    url: str | None = None,
    ready_seconds: float = 30.0,
    announce: Callable[[str], None] = print_line,
    count_running: Callable[[], int] = lambda: 0,
    backoff_seconds_max: float = BACKOFF_SECONDS_MAX,
) -> int:
    """Run the embedded system on `directory` until it is stopped; returns the exit status for the shell.

    Gives up root first, so nothing that holds a store may be imported by then: `preload` imports what the
    roles share; `count_running` tells a stop what it waits for. Raises AccountError, UnreachableError,
    DataDirectoryError, AlreadyRunningError or BrokerError with nothing started.
    """
    settle_account(directory, environment)
    prepare(directory)
    lock = StartLock.take(directory)
    try:
        withdraw_ready(directory)
        broker = broker_role(directory, environment)

        def grow() -> int:
            tree = ProcessTree(
                directory,
                (broker, *roles),
                owner=owner,
                version=version,
                url=url,
                ready_seconds=ready_seconds,
                announce=announce,
                count_running=count_running,
                backoff_seconds_max=backoff_seconds_max,
            )
            return tree.run(preload)

        owner = kernel.own_identity()
        return _stay_in_foreground(directory, grow)
    finally:
        remove_short_folder(directory)
        lock.release()


def broker_role(directory: DataDirectory, environment: Mapping[str, str]) -> Role:
    """The broker as a role; BrokerError when there is no server to start."""
    binary = find_server(environment)
    settings = BrokerSettings()

    def start(context: RoleContext) -> int:
        # From here on the signal ends the process; one that came before is seen just below.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return 0 if context.stopping.is_set() else become_server(directory, binary, settings)

    return Role(
        BROKER_ROLE,
        start,
        stop_stage=STOP_BROKER,
        before_preload=True,
        probe=lambda pid: is_ready(directory, pid),
        alone=True,
    )


def _stay_in_foreground(directory: DataDirectory, grow: Callable[[], int]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    kernel.adopt_orphans()
    owner_pid = os.getpid()
    used = (*STOP_SIGNALS, signal.SIGCHLD, OWNER_DIED_SIGNAL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, used)
    tree_pid = os.fork()
    if tree_pid == 0:
        _run_tree(owner_pid, grow)
    previous = [(number, signal.getsignal(number)) for number in STOP_SIGNALS]
    for number in STOP_SIGNALS:
        # What the shell had ignored for us (nohup) stays ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda got, _frame: os.kill(tree_pid, got))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    status = _wait_for(tree_pid)
    for number, reaction in previous:
        signal.signal(number, reaction)
    if status not in (0, 1):
        print(f"the parent of all roles ended ({status}); everything is stopped", file=sys.stderr)  # noqa: T201 - nobody else is left to say it
        end_all(LEFTOVER_SECONDS)
        withdraw_ready(directory)
        return 1
    return status


def _run_tree(owner_pid: int, grow: Callable[[], int]) -> None:
    """In the forked parent of all roles; never returns."""
    status = EXIT_OWNER_DIED
    try:
        os.setsid()  # Ctrl-C comes to the foreground process alone, which passes it on
        kernel.set_process_name("il-parent")
        # Until the tree listens this signal stays blocked, and is not lost.
        kernel.die_with_parent(owner_pid, OWNER_DIED_SIGNAL)
        status = grow()
    except BaseException:  # noqa: BLE001 - the composition root of a process; the foreground ends the rest
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait_for(tree_pid: int) -> int:
    """The status of the tree's process; whatever else is adopted meanwhile is collected on the way."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == tree_pid:
            return os.waitstatus_to_exitcode(status)
