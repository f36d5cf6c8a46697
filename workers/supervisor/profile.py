"""What a sandbox holds and what it lets through, as values. Says nothing of how it is built.

The profile follows from the call's declared capabilities alone; nothing in its arguments can widen it.
"""

from __future__ import annotations

import ipaddress
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from workers.supervisor.port import FILE_READ, FILE_WRITE, Call, NotStarted, SandboxReport

WORKSPACE_INSIDE = "/work"
PROGRAM_INSIDE = "/run/interlock/program.py"
SANDBOX_UID = 65534

# Nothing of the host's environment passes. Home is a folder that no execution leaves to the next.
ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TMPDIR": "/tmp",
    }
)

# The sandbox's own /etc. What else programs ask for there is bound read-only from the host: HOST_ETC.
MADE_UP_ETC: Mapping[str, bytes] = MappingProxyType(
    {
        "passwd": b"root:x:0:0::/:/usr/sbin/nologin\nnobody:x:65534:65534::/tmp:/bin/sh\n",
        "group": b"root:x:0:\nnogroup:x:65534:\n",
        "nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
        "hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
        "resolv.conf": b"",
    }
)
HOST_ETC = ("ld.so.cache", "alternatives", "ssl/certs")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one execution apart from time and output, which the call names."""

    data_bytes: int = 4 * 1024**3
    file_bytes: int = 512 * 1024**2
    open_files: int = 1_024
    processes: int = 512
    scratch_bytes: int = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What the self-test proved on this machine; every execution is held exactly like that."""

    launcher: str
    interpreter: str
    interpreter_prefix: str | None
    deny_user_namespaces: bool
    report: SandboxReport


@dataclass(frozen=True, slots=True)
class Profile:
    """What one execution may see: its workspace or none, and where it starts."""

    workspace: Path | None
    is_writable: bool
    folder: str
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class EgressEntry:
    """A host and port that http.fetch may reach.

    `networks` are addresses or CIDR networks this entry may resolve to although they are not public.
    """

    host: str
    port: int
    networks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for network in self.networks:
            ipaddress.ip_network(network)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a spawner is given once, at start."""

    sandbox: Sandbox | NotStarted
    egress: tuple[EgressEntry, ...] = ()
    orphan_outcome_dir: Path | None = None
    lock_fd: int | None = None
    limits: Limits = field(default_factory=Limits)
    is_self_test: bool = False


def profile_of(call: Call, folder: str, limits: Limits) -> Profile:
    """The profile that the call's capabilities allow; `folder` is relative to the workspace."""
    if FILE_READ not in call.capabilities or call.workspace is None:
        return Profile(None, False, "/tmp", limits)
    inside = os.path.join(WORKSPACE_INSIDE, folder) if folder else WORKSPACE_INSIDE
    return Profile(call.workspace, FILE_WRITE in call.capabilities, inside, limits)


def apply_limits(limits: Limits) -> None:
    """Bounds this process and whatever it starts, for good."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_DATA: limits.data_bytes,
    }
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))
