"""What the standard library does not offer of Linux: prctl, statfs, and the tree of processes in /proc.

It never decides what to do with a fact, and keeps no state of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_GET_NO_NEW_PRIVS = 39
ENV_START_FIELD = 50  # of /proc/self/stat, counted from 1 as proc(5) does
START_TIME_FIELD = 22


def _prctl(option: int, argument: int | bytes) -> int:
    """One prctl; raises OSError with the kernel's errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    value = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    zero = ctypes.c_ulong(0)
    answer = int(libc.prctl(ctypes.c_int(option), value, zero, zero, zero))
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
    return answer


def die_with_parent(parent_pid: int, signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel for `signal_number` when the parent *thread* ends.

    Comes after any change of ids, which would clear it. A parent that died before the request is found by
    comparing its id: then this process ends at once.
    """
    _prctl(PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process instead of init's."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """No program started from here on gains anything from set-id bits or file capabilities."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def forbids_new_privileges() -> bool:
    """Whether `forbid_new_privileges` holds for this process."""
    return _prctl(PR_GET_NO_NEW_PRIVS, 0) == 1


def allow_own_inspection() -> None:
    """Give /proc/self back to the account: after a change of ids the kernel hands it to root."""
    _prctl(PR_SET_DUMPABLE, 1)


def set_process_name(name: str) -> None:
    """Name this process for ps and top (the first 15 bytes count)."""
    _prctl(PR_SET_NAME, name.encode()[:15])


def replace_environment(environment: Mapping[str, str]) -> None:
    """Make `environment` this process's whole environment, in /proc/self/environ too.

    Every forked process shows the block that exec was given, whatever was unset later; so the block itself
    is overwritten. `os.environ` is left holding exactly `environment`.
    """
    kept = dict(environment)
    os.environ.clear()
    ctypes.CDLL(None).clearenv()  # nothing points into the block any more
    fields = _stat_fields(os.getpid())
    start, end = (int(fields[ENV_START_FIELD + offset - 1]) for offset in (0, 1))
    if end > start:
        ctypes.memset(start, 0, end - start)
    os.environ.update(kept)


def filesystem_type(path: Path) -> int:
    """The magic number of the file system that holds `path` (statfs `f_type`)."""
    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.create_string_buffer(512)
    if libc.statfs(os.fsencode(path), answer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return ctypes.c_ulong.from_buffer(answer).value & 0xFFFFFFFF


def boot_id() -> str:
    """The kernel's name for the time since this machine started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, told apart from a later one that got the same number."""

    pid: int
    start_ticks: int  # since the machine started
    boot_id: str


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the living process `pid`, or None; a zombie counts as dead."""
    try:
        fields = _stat_fields(pid)
    except OSError:
        return None
    if fields[2] in ("Z", "X"):
        return None
    return ProcessIdentity(pid, int(fields[START_TIME_FIELD - 1]), boot_id())


def own_identity() -> ProcessIdentity:
    """The identity of this process."""
    fields = _stat_fields(os.getpid())
    return ProcessIdentity(os.getpid(), int(fields[START_TIME_FIELD - 1]), boot_id())


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether exactly this process still lives."""
    return identify(identity.pid) == identity


def descendants(root_pid: int) -> frozenset[int]:
    """All living processes below `root_pid`, whatever session or group they moved to."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    open_ends = [root_pid]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        open_ends.extend(pid for pid in below if pid not in found)
        found.update(below)
    return frozenset(found)


def thread_count() -> int:
    """How many threads this process has, those of native libraries included."""
    return len(os.listdir("/proc/self/task"))


def resident_share_bytes(pid: int) -> int:
    """The proportional share of memory (PSS) of `pid`, in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _parents() -> Iterator[tuple[int, int]]:
    """(pid, parent) of every living process that can be seen."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = _stat_fields(int(name))
        except OSError:
            continue  # it ended while we were reading
        if fields[2] not in ("Z", "X"):
            yield int(name), int(fields[3])


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat; the second, a free name, may hold spaces and brackets."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        text = file.read()
    before, _, rest = text.rpartition(")")
    number, _, name = before.partition("(")
    return [number.strip(), name, *rest.split()]
