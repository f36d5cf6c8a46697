"""The key files of an installation: made once, whole, at the first start; read with their rights checked.

A key that is missing later is never made anew: what it signed could not be told from a forgery.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from interlock.canonical import Json, canonical, read_stored
from interlock.durable import sync_folder
from interlock.errors import NotJsonError, OursToFixError

KEY_BYTES = 32
PUBLIC_FILE = "public.json"


class KeyPurpose(StrEnum):
    """What each key of an installation is for."""

    GOVERNANCE = "governance"
    """Signs permits; only the governor reads it."""
    POOL = "pool"
    """Signs receipts."""
    ANCHOR = "anchor"
    """Signs heads of the chain."""
    SEALING = "sealing"
    """Encrypts sensitive arguments; symmetric."""

    @property
    def signs(self) -> bool:
        return self is not KeyPurpose.SEALING


class KeyUnavailableError(OursToFixError):
    """A key file is missing, unreadable, malformed, or open to others."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__("KEY_UNAVAILABLE", f"{path} {what}", path=str(path))
        self.path = path


def make_keys(folder: Path, public_of: Callable[[bytes], str]) -> None:
    """Make all keys of a new installation, or nothing where the folder already holds some.

    `public_of` gives the hexadecimal public key of private bytes. The folder appears whole, under its name,
    with rights 0700 and files of 0600; two processes that try at once end with one set.
    """
    if folder.is_dir() and any(folder.iterdir()):
        return
    draft = folder.with_name(f"{folder.name}.new-{secrets.token_hex(8)}")
    draft.mkdir(mode=0o700)
    try:
        _fill(draft, public_of)
        _take_place(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_key(folder: Path, purpose: KeyPurpose) -> bytes:
    """The 32 private bytes of one key. Raises KeyUnavailableError."""
    path = folder / f"{purpose.value}.key"
    text = _read_private(folder, path)
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyUnavailableError(path, "holds no key")
    return key


def read_public(folder: Path) -> Mapping[KeyPurpose, str]:
    """Purpose → hexadecimal public key of every signing key. Raises KeyUnavailableError."""
    path = folder / PUBLIC_FILE
    try:
        found = read_stored(path.read_bytes())
    except (OSError, NotJsonError) as error:
        raise KeyUnavailableError(path, f"cannot be read: {error}") from None
    signing = [purpose for purpose in KeyPurpose if purpose.signs]
    if sorted(found) != sorted(signing):
        raise KeyUnavailableError(path, "does not name every key")
    return MappingProxyType({purpose: str(found[purpose]) for purpose in signing})


def _fill(draft: Path, public_of: Callable[[bytes], str]) -> None:
    public: dict[str, Json] = {}
    for purpose in KeyPurpose:
        key = secrets.token_bytes(KEY_BYTES)
        _write(draft / f"{purpose.value}.key", key.hex().encode() + b"\n")
        if purpose.signs:
            public[purpose.value] = public_of(key)
    _write(draft / PUBLIC_FILE, canonical(public) + b"\n")
    sync_folder(draft)


def _take_place(draft: Path, folder: Path) -> None:
    try:
        draft.rename(folder)
    except OSError as error:
        # Somebody else was first, and theirs are the keys; an empty folder is simply replaced.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    sync_folder(folder.parent)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_private(folder: Path, path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise KeyUnavailableError(path, error.strerror or "cannot be opened") from None
    with open(descriptor, encoding="ascii", errors="replace") as file:
        # The open file is judged, not its name, which may mean another file by now.
        _require_private(path, os.fstat(descriptor))
        _require_private(folder, folder.stat())
        return file.read(4 * KEY_BYTES).strip()


def _require_private(path: Path, found: os.stat_result) -> None:
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise KeyUnavailableError(path, "is open to others than its owner")
    if found.st_uid not in (os.geteuid(), 0):
        raise KeyUnavailableError(path, f"belongs to user {found.st_uid}")
