"""Settles where a command works and as whom: the data directory, under the account that owns it.

Makes nothing. Root is given up before any store is imported, so no file of root's appears among the data.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gateway.embedded.account import settle_account
from gateway.embedded.directory import DataDirectory, default_path
from gateway.wiring import broker_answers
from interlock.errors import GiveUpError, NotRunningError


def named_directory(data: Path | None) -> DataDirectory:
    """The directory that was asked for, whether or not it exists."""
    return DataDirectory.at(data if data is not None else default_path(os.environ, os.geteuid()), os.environ)


def enter(data: Path | None) -> DataDirectory:
    """An existing data directory; as root, this process becomes the account that owns it, for good.

    Relative paths mean something else afterwards: files that were named are read before. Raises
    NotFoundError, GiveUpError(NOT_PERMITTED), AccountError or UnreachableError.
    """
    directory = named_directory(data)
    owner = _owner_of(directory)
    if os.geteuid() == 0 and owner != 0:
        settle_account(directory, {**os.environ, "INTERLOCK_UID": str(owner)})
    os.umask(0o077)
    if not os.access(directory.path, os.R_OK | os.X_OK):
        raise GiveUpError("NOT_PERMITTED", f"{directory.path} belongs to the account {owner}")
    return directory


def enter_running(data: Path | None) -> DataDirectory:
    """The same, of a system that runs: NotRunningError where its broker does not answer."""
    directory = enter(data)
    if not broker_answers(directory):
        raise NotRunningError(str(directory.path))
    return directory


def require_owner(directory: DataDirectory) -> None:
    """Only the account that the data belongs to acts as the local operator (and root, which became it)."""
    owner = _owner_of(directory)
    if os.geteuid() not in (0, owner):
        raise GiveUpError("NOT_PERMITTED", f"only the account {owner} is the operator of {directory.path}")


def _owner_of(directory: DataDirectory) -> int:
    try:
        found = directory.path.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(directory.path)
        return found.st_uid
    except PermissionError as error:
        raise GiveUpError("NOT_PERMITTED", f"{directory.path} cannot be looked at") from error
    except OSError as error:
        sentence = (
            f"there is no data directory {str(directory.path)[:300]}: {error.strerror or 'it is a file'}"
        )
        where = "--data DIR or INTERLOCK_DATA names it, `interlock up` makes one"
        raise GiveUpError("NOT_FOUND", f"{sentence}; {where}") from error
