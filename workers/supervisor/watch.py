"""Watches one started child to its end: deadline, stop, pool, output and tree limits, in one loop.

Whatever ends it, the whole tree is gone and the pipes are closed when `watch` returns.
"""

from __future__ import annotations

import json
import os
import resource
import select
import time
from dataclasses import dataclass
from enum import Enum

from workers.supervisor.capture import BUFFER_BYTES, Capture, Captured
from workers.supervisor.channel import STOP, Channel, LineClosedError
from workers.supervisor.launch import Child
from workers.supervisor.tree import count_below, end_all

TICK_MS = 250
DRAIN_GRACE_MS = 300


class End(Enum):
    """Why watching ended."""

    EXITED = "exited"
    STOPPED = "stopped"
    TIMED_OUT = "timed out"
    POOL_LOST = "pool lost"
    TOO_MANY_PROCESSES = "too many processes"
    KILLED = "killed by something else"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the watch enforces, and since when the execution counts: moments of the monotonic clock."""

    began_ns: int
    deadline_ns: int
    stream_limit_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class Ran:
    """How the child ended. `exit_code` is None unless it reached its own end inside a finished set-up."""

    end: End
    reason: str
    exit_code: int | None
    stdout: Captured
    stderr: Captured
    duration_ms: int
    is_tree_gone: bool
    resources: dict[str, int]


def watch(child: Child, channel: Channel, bounds: Bounds) -> Ran:
    """Follows `child` until it exits or must not go on, ends its tree, and says how it went."""
    buffer = bytearray(BUFFER_BYTES)
    streams = [Capture(fd, bounds.stream_limit_bytes, buffer) for fd in (child.stdout_fd, child.stderr_fd)]
    end, reason = _until_end(child, channel, bounds, streams)
    duration_ms = (time.monotonic_ns() - bounds.began_ns) // 1_000_000
    exit_code = None
    if end is End.EXITED:
        end, exit_code = _own_end(child)
    is_tree_gone = end_all()
    _drain(streams)
    os.close(child.pidfd)
    stdout, stderr = (stream.captured() for stream in streams)
    return Ran(end, reason, exit_code, stdout, stderr, duration_ms, is_tree_gone, _resources())


def _until_end(child: Child, channel: Channel, bounds: Bounds, streams: list[Capture]) -> tuple[End, str]:
    poller = select.poll()
    by_fd = {stream.fd: stream for stream in streams}
    for fd in (channel.fileno(), child.pidfd, *by_fd):
        poller.register(fd, select.POLLIN)
    next_count_ns = time.monotonic_ns() + TICK_MS * 1_000_000
    while True:
        now_ns = time.monotonic_ns()
        if now_ns >= bounds.deadline_ns:
            return End.TIMED_OUT, "the wall limit is over"
        if now_ns >= next_count_ns:
            next_count_ns = now_ns + TICK_MS * 1_000_000
            if count_below(bounds.processes) > bounds.processes:
                return End.TOO_MANY_PROCESSES, f"more than {bounds.processes} processes"
        ready = {fd for fd, _ in poller.poll(min(TICK_MS, (bounds.deadline_ns - now_ns) // 1_000_000 + 1))}
        for fd in ready & by_fd.keys():
            _take(by_fd[fd], poller)
        if channel.fileno() in ready and (ended := _heard(channel)):
            return ended
        if child.pidfd in ready:
            return End.EXITED, ""


def _take(stream: Capture, poller: select.poll) -> None:
    stream.take()
    if stream.at_end:
        poller.unregister(stream.fd)


def _heard(channel: Channel) -> tuple[End, str] | None:
    try:
        frame = channel.receive(timeout_ms=0)
    except LineClosedError:
        return End.POOL_LOST, "the pool that asked is gone"
    if frame is None or frame["frame"] != STOP:
        return None
    return End.STOPPED, str(frame["reason"])


def _own_end(child: Child) -> tuple[End, int | None]:
    """Whether it ended by itself, and its exit code: None where a sandbox never reached the program."""
    ended = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
    if ended is None or ended.si_code != os.CLD_EXITED:
        return End.KILLED, None
    if child.status_fd is None:
        return End.EXITED, ended.si_status
    return End.EXITED, _reported_exit_code(child.status_fd)


def _reported_exit_code(status_fd: int) -> int | None:
    """The program's exit code as the launcher tells it: absent when the program was never reached."""
    os.set_blocking(status_fd, False)
    with open(status_fd, "rb") as file:
        lines = (file.read() or b"").splitlines()
    reports = [json.loads(line) for line in lines if line.strip()]
    return next((report["exit-code"] for report in reports if "exit-code" in report), None)


def _drain(streams: list[Capture]) -> None:
    """Takes what the pipes still hold; a pipe that something outside keeps open gets the grace, no more."""
    give_up_at = time.monotonic() + DRAIN_GRACE_MS / 1000
    for stream in streams:
        while not stream.at_end and time.monotonic() < give_up_at:
            if not stream.take() and not stream.at_end:
                select.select([stream.fd], [], [], max(0.0, give_up_at - time.monotonic()))
        stream.close()


def _resources() -> dict[str, int]:
    """Integers: processor time and peak memory of the tree, and the supervisor's own peak."""
    tree, own = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    return {
        "user_ms": int(tree.ru_utime * 1000),
        "system_ms": int(tree.ru_stime * 1000),
        "peak_memory_bytes": tree.ru_maxrss * 1024,
        "supervisor_peak_memory_bytes": own.ru_maxrss * 1024,
    }
