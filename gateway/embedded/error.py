"""What keeps an embedded system from starting, each with a stable code and what to do about it."""

from __future__ import annotations

from pathlib import Path


class EmbeddedError(Exception):
    """The embedded system cannot start or continue; `code` is stable, `remedy` is one sentence."""

    code = "EMBEDDED_FAILED"

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class AccountError(EmbeddedError):
    """Privileges could not be given up, so nothing was started."""

    code = "ACCOUNT_NOT_DROPPED"


class UnreachableError(EmbeddedError):
    """The unprivileged account cannot enter `folder`, which lies on the way to `wanted`."""

    code = "PATH_UNREACHABLE"

    def __init__(self, folder: Path, wanted: Path, uid: int) -> None:
        super().__init__(
            f"the account {uid} cannot enter {folder}, which it needs for {wanted}",
            f"allow others to enter {folder}, or choose a place outside it",
        )
        self.folder = folder
        self.wanted = wanted
        self.uid = uid


class DataDirectoryError(EmbeddedError):
    """The directory at `path` cannot hold a ledger, or is not ours to touch."""

    code = "DATA_DIRECTORY_UNSUITABLE"

    def __init__(self, path: Path, why: str, remedy: str) -> None:
        super().__init__(f"{path} {why}", remedy)
        self.path = path


class InUseError(EmbeddedError):
    """Another system, started as process `pid`, runs on the directory `path`."""

    code = "DATA_DIRECTORY_IN_USE"

    def __init__(self, path: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid is not None else "a process of an earlier start"
        super().__init__(f"{path} is in use by {owner}", "stop it first, or choose another --data directory")
        self.path = path
        self.pid = pid


class BrokerError(EmbeddedError):
    """The broker's server is missing, unusable, or did not become ready."""

    code = "BROKER_UNAVAILABLE"


class NotReadyError(EmbeddedError):
    """`role` did not become ready; `log` holds what it said."""

    code = "ROLE_NOT_READY"

    def __init__(self, role: str, why: str, log: Path) -> None:
        super().__init__(f"role {role} {why}", f"read {log}")
        self.role = role
        self.log = log


class NotRunningError(EmbeddedError):
    """No system runs on the directory `path`."""

    code = "NOT_RUNNING"

    def __init__(self, path: Path) -> None:
        super().__init__(f"nothing runs on {path}", "start it with `interlock up`")
        self.path = path
