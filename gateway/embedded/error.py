"""What keeps an embedded system from starting, beyond what `interlock.errors` already names."""

from __future__ import annotations

from pathlib import Path

from interlock.errors import GiveUpError, OursToFixError


class AccountError(OursToFixError):
    """Privileges could not be given up, so nothing was started."""

    def __init__(self, message: str) -> None:
        super().__init__("CONFIG_INVALID", message)


class UnreachableError(OursToFixError):
    """The unprivileged account `uid` cannot enter `folder`, which lies on the way to `wanted`."""

    def __init__(self, folder: Path, wanted: Path, uid: int) -> None:
        super().__init__(
            "DATA_UNREACHABLE",
            f"the account {uid} cannot enter {folder}, which it needs for {wanted}",
            folder=str(folder),
            wanted=str(wanted),
            uid=uid,
        )
        self.folder = folder
        self.wanted = wanted
        self.uid = uid


class DataDirectoryError(GiveUpError):
    """The directory at `path` cannot hold a ledger, or is not ours to touch."""

    def __init__(self, path: Path, why: str, code: str = "CONFIG_INVALID") -> None:
        super().__init__(code, f"{path} {why}", path=str(path))
        self.path = path


class BrokerError(OursToFixError):
    """The broker's server is missing, unusable, or did not become ready."""

    def __init__(self, message: str) -> None:
        super().__init__("BROKER_UNAVAILABLE", message)


class NotReadyError(OursToFixError):
    """`role` did not become ready; the file `log` holds what it said."""

    def __init__(self, role: str, why: str, log: Path) -> None:
        super().__init__("NOT_READY", f"role {role} {why}; see {log}", role=role, log=str(log))
        self.role = role
        self.log = log
