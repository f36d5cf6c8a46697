"""Gives up root, once and for good, before Celery or any store is imported.

Decides under which numeric id the embedded system runs, hands it the data directory and an environment that
holds nothing of root's. It adds no account, and never touches what the system did not make itself.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded import kernel
from gateway.embedded.directory import DataDirectory, hand_over
from gateway.embedded.error import AccountError, UnreachableError

DEFAULT_UID = 23917
UID_MAX = 2**31 - 1
UMASK = 0o077
OTHER_ACCOUNT = "set INTERLOCK_UID to a number that this user namespace has, or start as an ordinary user"
#: Once imported, such a module may hold descriptors, threads or settings that were made as root.
TOO_LATE = frozenset({"celery", "kombu", "redis", "sqlalchemy", "sqlite3", "psycopg", "billiard"})
KEPT_NAMES = frozenset(
    {"PATH", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR"}
)
KEPT_PREFIXES = ("INTERLOCK_", "LC_")


@dataclass(frozen=True, slots=True)
class AccountReport:
    """What was done: the ids the system runs under, and whether they are others than it was started with."""

    started_as_uid: int
    uid: int
    gid: int
    dropped: bool
    home: Path
    no_new_privileges: bool


def wanted_uid(environment: Mapping[str, str]) -> int:
    """The id to run under when started as root: `INTERLOCK_UID`, else 23917; AccountError when unusable."""
    text = environment.get("INTERLOCK_UID", str(DEFAULT_UID))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= UID_MAX:
        raise AccountError(
            f"INTERLOCK_UID is {text!r}, not the number of an unprivileged account (1 to {UID_MAX})"
        )
    return int(text)


def settle_account(directory: DataDirectory, environment: Mapping[str, str]) -> AccountReport:
    """Make this process unprivileged and able to use `directory`; returns what was done.

    As root: hands the directory over, changes ids for good and replaces the environment. As anyone else ids
    and environment stay. Both ways the umask becomes 077, core files are off, and no program started later
    gains privileges. Raises AccountError, UnreachableError or DataDirectoryError, with nothing started.
    """
    started_as = os.geteuid()
    if started_as == 0:
        _drop(directory, environment)
    elif os.getuid() != started_as:
        raise AccountError("real and effective account differ: it was started with set-id bits")
    # An account without an entry, as in many containers, has no home but what its environment says.
    home = Path(environment["HOME"]) if started_as and environment.get("HOME") else directory.home
    os.umask(UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the signing key
    kernel.forbid_new_privileges()
    return AccountReport(
        started_as_uid=started_as,
        uid=os.getuid(),
        gid=os.getgid(),
        dropped=started_as == 0,
        home=home,
        no_new_privileges=kernel.forbids_new_privileges(),
    )


def clean_environment(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """What of root's environment an unprivileged system keeps: a closed list, and a home of its own."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)
    }
    return {**kept, "HOME": str(home)}


def needed_paths() -> tuple[Path, ...]:
    """What the account must be able to enter besides its data: interpreter, libraries, and our own code."""
    searched = [Path(entry) for entry in sys.path if entry and os.path.exists(entry)]
    return tuple(dict.fromkeys([Path(sys.executable), Path(sys.prefix), *searched]))


def first_unreachable(paths: Iterable[Path], uid: int) -> tuple[Path, Path] | None:
    """(folder, wanted) of the first path that account `uid` cannot reach; None when it reaches them all.

    A forked child takes the account on and asks the kernel, so that access lists and mounts count as well.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer_as(uid, paths, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise AccountError(f"the account {uid} cannot be taken on here; {OTHER_ACCOUNT}")
    if not answer:
        return None
    folder, _, wanted = answer.partition(b"\0")
    return Path(os.fsdecode(folder)), Path(os.fsdecode(wanted))


def _drop(directory: DataDirectory, environment: Mapping[str, str]) -> None:
    uid = wanted_uid(environment)
    late = sorted(TOO_LATE & set(sys.modules))
    if late:
        raise AccountError(f"{', '.join(late)} was imported before root was given up")
    hand_over(directory.path, uid)
    blocked = first_unreachable((directory.path, *needed_paths()), uid)
    if blocked is not None:
        raise UnreachableError(*blocked, uid)
    cleaned = clean_environment(environment, directory.home)
    _become(uid)
    kernel.replace_environment(cleaned)
    kernel.allow_own_inspection()
    _prove_dropped(uid)
    os.chdir(directory.path)  # root's own folder may be closed to this account


def _become(uid: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise AccountError(
            f"the account {uid} cannot be taken on ({error.strerror}); {OTHER_ACCOUNT}"
        ) from error


def _prove_dropped(uid: int) -> None:
    """Root must be out of reach now: the kernel is asked, not our own memory of what we called."""
    try:
        os.setresuid(0, 0, 0)
    except PermissionError:
        if os.getresuid() == (uid, uid, uid) and os.getresgid() == (uid, uid, uid) and not os.getgroups():
            return
    raise AccountError("root could be taken back after it was given up")


def _answer_as(uid: int, paths: Iterable[Path], writing: int) -> None:
    """In the probing child: write the first obstacle to the pipe and end; never returns."""
    status = 1
    try:
        _become(uid)
        os.write(writing, _first_obstacle(paths))
        status = 0
    finally:
        os._exit(status)


def _first_obstacle(paths: Iterable[Path]) -> bytes:
    for wanted in paths:
        # Real paths too: an interpreter in a virtual environment is a link to one that may lie elsewhere.
        for path in dict.fromkeys((wanted.absolute(), Path(os.path.realpath(wanted)))):
            for folder in reversed((path, *path.parents)):
                needs = os.X_OK if folder != path else os.R_OK if path.is_file() else os.X_OK
                if not os.access(folder, needs):
                    return os.fsencode(folder) + b"\0" + os.fsencode(wanted)
    return b""
