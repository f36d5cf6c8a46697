"""Facts about the machine and the directory that `doctor` shows, each one small reading; it mends nothing."""

from __future__ import annotations

import os
import pwd
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.embedded import kernel
from gateway.embedded.adapters.valkey import find_server, server_version
from gateway.embedded.broker import files_set_aside, is_ready
from gateway.embedded.control import ask
from gateway.embedded.directory import (
    LAYOUT_VERSION,
    MEMORY_FILESYSTEMS,
    NETWORK_FILESYSTEMS,
    DataDirectory,
    layout_version,
)
from gateway.embedded.error import BrokerError
from gateway.embedded.start_lock import lock_owner
from interlock.errors import NotRunningError

State = Literal["ok", "degraded", "off", "failed"]

KERNEL_MIN = (5, 13)  # Landlock; the rest of what is used is older
FREE_BYTES_LOW = 2**30
FREE_BYTES_MIN = 64 * 2**20
SYNC_SLOW_MS = 20.0
SYNC_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `doctor`. `remedy` is empty when there is nothing to do."""

    name: str
    state: State
    detail: str
    remedy: str = ""


def check_all(directory: DataDirectory, environment: Mapping[str, str]) -> list[Check]:
    """Every check of the embedded system, in the order in which they are worth reading."""
    checks: Sequence[Callable[[], Check]] = (
        lambda: check_kernel(os.uname().release),
        check_account,
        check_trust,
        lambda: check_directory(directory),
        lambda: check_filesystem(kernel.filesystem_type(_existing(directory))),
        lambda: check_free_space(directory),
        lambda: check_sync(directory),
        lambda: check_server(environment),
        lambda: check_broker(directory),
        lambda: check_running(directory),
        lambda: check_roles(directory),
    )
    return [check() for check in checks]


def check_kernel(release: str) -> Check:
    """Whether the kernel has what isolation needs; `release` is such as `6.1.0-18-amd64`."""
    numbers = release.split("-")[0].split(".")
    try:
        version = (int(numbers[0]), int(numbers[1]))
    except (ValueError, IndexError):
        return Check(
            "kernel", "degraded", f"unknown release {release}", "use a Linux kernel of 5.13 or later"
        )
    if version < KERNEL_MIN:
        return Check("kernel", "degraded", release, "use 5.13 or later: older ones lack Landlock")
    return Check("kernel", "ok", release)


def check_account() -> Check:
    """Under which account this runs, and that it is not root."""
    uid = os.geteuid()
    if uid == 0:
        return Check("account", "ok", "root now; `up` gives root up before it imports any store")
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = "without a name"
    return Check("account", "ok", f"{uid} ({name})")


def check_trust() -> Check:
    """Says what embedded mode does not separate."""
    return Check(
        "trust_domain",
        "ok",
        "embedded mode is one trust domain: pools run as the account that owns ledger and signing key",
        "use the server profile, with an account a role, where pools must not be trusted",
    )


def check_directory(directory: DataDirectory) -> Check:
    """Whether the data directory exists, in a layout that this program knows, private to its account."""
    if not directory.path.exists():
        return Check(
            "data_directory", "off", f"{directory.path} does not exist yet", "`interlock up` makes it"
        )
    version = layout_version(directory)
    if version != LAYOUT_VERSION:
        return Check(
            "data_directory",
            "failed",
            f"layout {version}, known is {LAYOUT_VERSION}",
            "name another directory",
        )
    mode = directory.path.stat().st_mode & 0o777
    if mode & 0o077:
        return Check(
            "data_directory", "degraded", f"mode {mode:o} lets others in", f"chmod 700 {directory.path}"
        )
    return Check("data_directory", "ok", str(directory.path))


def check_filesystem(kind: int) -> Check:
    """Whether locks and syncs hold on a file system of this type (statfs `f_type`)."""
    if kind in NETWORK_FILESYSTEMS:
        return Check("filesystem", "failed", NETWORK_FILESYSTEMS[kind], "choose a directory on a local disk")
    if kind in MEMORY_FILESYSTEMS:
        return Check("filesystem", "degraded", f"{MEMORY_FILESYSTEMS[kind]}: lost at power-off", "use a disk")
    return Check("filesystem", "ok", f"type {kind:#x}, local")


def check_free_space(directory: DataDirectory) -> Check:
    """Whether the ledger can go on growing."""
    free = shutil.disk_usage(_existing(directory)).free
    detail = f"{free // 2**20} MiB free"
    if free < FREE_BYTES_MIN:
        return Check(
            "free_space", "failed", detail, "free some space: what cannot be written is not accepted"
        )
    if free < FREE_BYTES_LOW:
        return Check("free_space", "degraded", detail, "free some space before it runs out")
    return Check("free_space", "ok", detail)


def measure_fsync(directory: DataDirectory, count: int) -> float:
    """The median time of one durable write of 4 KiB on the directory's file system, in milliseconds."""
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=_existing(directory)) as file:
        for _ in range(count):
            began = time.perf_counter()
            os.write(file.fileno(), b"\0" * SYNC_BYTES)
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def check_sync(directory: DataDirectory, count: int = 20) -> Check:
    """How long one durable write takes here: it bounds what a single submission can cost."""
    try:
        median_ms = measure_fsync(directory, count)
    except OSError as error:
        return Check("fsync", "off", f"not measured: {error.strerror}", "run doctor as the data's account")
    detail = f"{median_ms:.2f} ms"
    if median_ms > SYNC_SLOW_MS:
        return Check("fsync", "degraded", detail, "use a faster disk: every acceptance waits for it")
    return Check("fsync", "ok", detail)


def check_server(environment: Mapping[str, str]) -> Check:
    """Which broker server would be started."""
    try:
        binary = find_server(environment)
        version = server_version(binary.path)
    except BrokerError as error:
        return Check("broker_server", "failed", error.message, error.remedy)
    return Check("broker_server", "ok", f"{version} from {binary.source}: {binary.path}")


def check_broker(directory: DataDirectory) -> Check:
    """Whether the broker answers, and whether it ever had to start empty."""
    try:
        aside = files_set_aside(directory)
        answering = is_ready(directory)
    except OSError as error:
        return Check("broker", "off", f"not read: {error.strerror}", "run doctor as the data's account")
    if aside:
        return Check(
            "broker",
            "degraded",
            f"unreadable files were set aside {len(aside)} times, last as {aside[-1].name}",
            "check the disk, then remove them: the ledger has refilled the broker",
        )
    if not answering:
        return Check("broker", "off", "does not run", "it runs with `interlock up`")
    return Check("broker", "ok", "answers")


def check_running(directory: DataDirectory) -> Check:
    """Whether a system runs on the directory."""
    owner = lock_owner(directory)
    if owner is None:
        return Check("running", "off", "no system runs here", "start it with `interlock up`")
    return Check("running", "ok", f"process {owner}")


def check_roles(directory: DataDirectory) -> Check:
    """Whether a role of the running system had to be started again."""
    try:
        return judge_roles(ask(directory, {"do": "status"}).get("roles"))
    except NotRunningError:
        return Check("roles", "off", "no system answers here", "start it with `interlock up`")


def judge_roles(roles: object) -> Check:
    """What `status` tells of the roles, as a check."""
    known = [role for role in roles if isinstance(role, dict)] if isinstance(roles, list) else []
    again = [role for role in known if role.get("restarts")]
    if not again:
        return Check("roles", "ok", f"{len(known)} roles, none was started again")
    shown = ", ".join(
        f"{role['name']} {role['restarts']} times (last exit {role['last_exit']})" for role in again
    )
    return Check("roles", "degraded", f"started again: {shown}", "its log in the data directory says why")


def _existing(directory: DataDirectory) -> Path:
    """The directory, or while it does not exist the nearest folder above that does."""
    return next(path for path in (directory.path, *directory.path.parents) if path.exists())
