"""What a run changed in a workspace: a bounded scan before, a bounded scan after, and the difference.

Never follows a link and never opens anything but regular files; what is over the bounds is said, not guessed.
The root is ours: a mode that a run gave it is taken back, or no later run could use it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.supervisor.port import AffectedEntity

UNREAD = "unread"
ROOT_MODE = 0o700
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """How much of a workspace is looked at."""

    entries: int = 10_000
    depth: int = 48
    digest_bytes: int = 32 * 1024**2
    changes: int = 256


@dataclass(frozen=True, slots=True)
class Mark:
    """One entry as it was: what `stat` tells, and its digest (`sha256:<hex>`, `unread`)."""

    seen: tuple[int, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files and links of a workspace by their path as bytes; `is_whole` is False over the bounds."""

    marks: Mapping[bytes, Mark]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Change:
    """One path and its digests; None where nothing was or is."""

    path: bytes
    before: str | None
    after: str | None

    def described(self) -> dict[str, Any]:
        """JSON: `path` (and `path_base64` where the name is not UTF-8), `before`, `after`."""
        return {**shown_name(self.path), "before": self.before, "after": self.after}

    def entity(self) -> AffectedEntity:
        """The change as a receipt names it; bytes that are not UTF-8 are shown as `\\xNN`."""
        return AffectedEntity("file", self.path.decode(errors="backslashreplace"), self.before, self.after)


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two snapshots, in the order of paths."""

    changes: tuple[Change, ...] = ()
    is_whole: bool = True

    @property
    def entities(self) -> tuple[AffectedEntity, ...]:
        """The changes as a receipt names them."""
        return tuple(change.entity() for change in self.changes)


@dataclass(slots=True)
class _Scan:
    bounds: ScanBounds
    known: Mapping[bytes, Mark]
    digest_bytes_left: int
    is_whole: bool = True
    marks: dict[bytes, Mark] = field(default_factory=dict)


def reopen(root: Path) -> None:
    """Gives a workspace's root its mode back. Raises OSError where that cannot be done."""
    # By a descriptor that needs no right to the folder itself, and that no other folder can slip under.
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) != ROOT_MODE:
            os.chmod(f"/proc/self/fd/{fd}", ROOT_MODE)
    finally:
        os.close(fd)


def take_snapshot(root: Path | None, bounds: ScanBounds, known: Snapshot | None = None) -> Snapshot:
    """Scans `root`; an entry that looks exactly as in `known` keeps the digest it had there."""
    scan = _Scan(bounds, known.marks if known else {}, bounds.digest_bytes)
    if root is not None:
        _scan_root(scan, root)
    return Snapshot(scan.marks, scan.is_whole)


def changes_between(before: Snapshot, after: Snapshot, bounds: ScanBounds) -> Changes:
    """The entries that appeared, vanished or have other content; at most `bounds.changes` of them."""
    changed = list(_changed(before.marks, after.marks))
    is_whole = before.is_whole and after.is_whole and len(changed) <= bounds.changes
    return Changes(tuple(changed[: bounds.changes]), is_whole)


def shown_name(name: bytes, key: str = "path") -> dict[str, str]:
    """A file name as JSON: readable always, exact in `<key>_base64` where it is not UTF-8."""
    try:
        return {key: name.decode()}
    except UnicodeDecodeError:
        return {key: name.decode(errors="replace"), f"{key}_base64": base64.b64encode(name).decode()}


def _changed(before: Mapping[bytes, Mark], after: Mapping[bytes, Mark]) -> Iterator[Change]:
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new or (old and new and old.digest == new.digest != UNREAD):
            continue
        yield Change(path, old.digest if old else None, new.digest if new else None)


def _scan_root(scan: _Scan, root: Path) -> None:
    try:
        reopen(root)
        fd = os.open(root, _OPEN_FOLDER)
    except OSError:
        _leave_unread(scan, b"")
        return
    try:
        _scan_folder(scan, fd, b"", 0)
    finally:
        os.close(fd)


def _leave_unread(scan: _Scan, prefix: bytes) -> None:
    """What was known below a folder that cannot be looked into is unread now, and not gone."""
    scan.is_whole = False
    for path, mark in scan.known.items():
        if path.startswith(prefix):
            scan.marks[path] = Mark(mark.seen, UNREAD)


def _scan_folder(scan: _Scan, fd: int, prefix: bytes, depth: int) -> None:
    with os.scandir(fd) as entries:
        names = sorted(os.fsencode(entry.name) for entry in _bounded(entries, scan))
    for name in names:
        try:
            _scan_entry(scan, fd, name, prefix, depth)
        except FileNotFoundError:
            continue  # It went away while we looked.
        except OSError:
            scan.is_whole = False


def _bounded(entries: Iterator[os.DirEntry[str]], scan: _Scan) -> Iterator[os.DirEntry[str]]:
    room = scan.bounds.entries - len(scan.marks)
    for entry in entries:
        if room <= 0:
            scan.is_whole = False
            return
        room -= 1
        yield entry


def _scan_entry(scan: _Scan, parent: int, name: bytes, prefix: bytes, depth: int) -> None:
    path = prefix + name
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        scan.marks[path] = _mark(scan, parent, name, path, found)
    elif depth >= scan.bounds.depth:
        scan.is_whole = False
    else:
        _scan_below(scan, parent, name, path + b"/", depth + 1)


def _scan_below(scan: _Scan, parent: int, name: bytes, prefix: bytes, depth: int) -> None:
    try:
        fd = os.open(name, _OPEN_FOLDER, dir_fd=parent)
    except PermissionError:
        _leave_unread(scan, prefix)
        return
    try:
        _scan_folder(scan, fd, prefix, depth)
    finally:
        os.close(fd)


def _mark(scan: _Scan, parent: int, name: bytes, path: bytes, found: os.stat_result) -> Mark:
    seen = (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    known = scan.known.get(path)
    if known is not None and known.seen == seen:
        return known
    if stat.S_ISLNK(found.st_mode):
        return Mark(seen, _sha256(b"link:" + os.readlink(name, dir_fd=parent)))
    if not stat.S_ISREG(found.st_mode) or found.st_size > scan.digest_bytes_left:
        return Mark(seen, UNREAD)
    scan.digest_bytes_left -= found.st_size
    return Mark(seen, _digest_of(parent, name, found.st_size))


def _digest_of(parent: int, name: bytes, size_bytes: int) -> str:
    digest = hashlib.sha256()
    fd = os.open(name, _OPEN_FILE, dir_fd=parent)
    try:
        while size_bytes > 0 and (chunk := os.read(fd, min(_CHUNK_BYTES, size_bytes))):
            digest.update(chunk)
            size_bytes -= len(chunk)
    finally:
        os.close(fd)
    return f"sha256:{digest.hexdigest()}"


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
