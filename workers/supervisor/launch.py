"""Starts the one child of a supervisor: a sandboxed program, or a function of ours in a fork.

Starts and wires, never waits. Nothing but the three standard descriptors and what is named passes on.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.supervisor.tree import die_with_parent

# Python ignores two of these and the spawner the others; a tool starts with the defaults.
_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run inside the sandbox.

    `script` is text mounted read-only in the sandbox for the interpreter named in `argv`;
    `folder` is where it starts, relative to the workspace.
    """

    argv: tuple[str, ...]
    stdin: bytes = b""
    folder: str = ""
    script: bytes | None = None


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function of ours to run in a process of its own; what it returns is the child's stdout."""

    run: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Child:
    """A started child. `status_fd` carries the sandbox's own report, where there is one."""

    pid: int
    pidfd: int
    stdout_fd: int
    stderr_fd: int
    status_fd: int | None = None


def start_program(argv: list[str], stdin: bytes, passed: Sequence[int], status_fd: int | None) -> Child:
    """Starts `argv` with an empty environment and `passed` as its only further descriptors."""
    stdin_fd = sealed_file(stdin) if stdin else os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate((stdin_fd, out_end, err_end))]
    for fd in passed:
        os.set_inheritable(fd, True)
    try:
        pid = os.posix_spawn(argv[0], argv, {}, file_actions=actions, setsigmask=(), setsigdef=_SIGNALS)
    finally:
        for fd in (stdin_fd, out_end, err_end, *passed):
            os.close(fd)
    return Child(pid, os.pidfd_open(pid), out, err, status_fd)


def start_function(function: OwnFunction) -> Child:
    """Forks and runs `function`; the child exits 0 with its bytes on stdout, or 1."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    supervisor_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run_and_exit(function, out_end, err_end, supervisor_pid)
    os.close(out_end)
    os.close(err_end)
    return Child(pid, os.pidfd_open(pid), out, err)


def sealed_file(content: bytes) -> int:
    """A descriptor, at its start, of content that nobody can change any more."""
    fd = os.memfd_create("interlock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    _seal(fd)
    return fd


def _seal(fd: int) -> None:
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)


def _run_and_exit(function: OwnFunction, out: int, err: int, supervisor_pid: int) -> None:
    code = 1
    try:
        die_with_parent(supervisor_pid)
        os.dup2(out, 1)
        os.dup2(err, 2)
        # Above all the line to the pool: held here, it would hide the supervisor's death.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        with open(1, "wb", closefd=False) as file:
            file.write(function.run())
        code = 0
    finally:
        os._exit(code)
