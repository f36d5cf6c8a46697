"""The spool: outcomes that are durable here before they are in the ledger, so that a lost ledger loses none.

One preallocated block a slot, since a full disk must not stop an outcome. Holds signed records as they were
made; never decides what becomes of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from interlock.durable import sync_folder

BLOCK_BYTES = 4 * 1_048_576
ORPHANS = "orphans"
FOREIGN = "foreign"
_MAGIC = b"ILSPOOL1"
_HEADER = struct.Struct(">8sQ32s")
_ZEROS = b"\0" * 1_048_576


class Block:
    """Room for one outcome, written over and over."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Written, not only reserved: what follows changes no metadata, so a sync is one write.
        for at in range(0, size_bytes, len(_ZEROS)):
            os.pwrite(self._file, _ZEROS[: size_bytes - at], at)
        os.fsync(self._file)

    def write(self, record: bytes) -> None:
        """Keep the record durably in place of the last one. Raises OSError when it is larger than the block
        and the disk is full."""
        whole = memoryview(_HEADER.pack(_MAGIC, len(record), hashlib.sha256(record).digest()) + record)
        at = 0
        while at < len(whole):
            at += os.pwrite(self._file, whole[at:], at)
        os.fdatasync(self._file)

    def clear(self) -> None:
        """Forget the record; not durably, since a record that comes back is known to the ledger."""
        os.pwrite(self._file, _ZEROS[: _HEADER.size], 0)

    def close(self) -> None:
        """Let go of the file; what it holds stays."""
        os.close(self._file)


def read_block(path: Path) -> bytes | None:
    """The record in a block, None where there is none, it was cut, or another process took it away."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(data)
    record = data[_HEADER.size : _HEADER.size + length]
    return record if magic == _MAGIC and hashlib.sha256(record).digest() == digest else None


class Spool:
    """The blocks of one pool process, in a folder named by its boot."""

    def __init__(self, root: Path, boot_id: str, slots: int, block_bytes: int = BLOCK_BYTES) -> None:
        self.folder = root / boot_id
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._blocks = [Block(self.folder / f"{slot}.block", block_bytes) for slot in range(slots)]
        sync_folder(self.folder)
        sync_folder(root)
        self._free: queue.SimpleQueue[Block] = queue.SimpleQueue()
        for block in self._blocks:
            self._free.put(block)

    def take(self) -> Block:
        """A free block; there is one for each slot."""
        return self._free.get(timeout=60)

    def give_back(self, block: Block) -> None:
        """Its record is in the ledger."""
        block.clear()
        self._free.put(block)

    def close(self) -> None:
        """Let go of the files, and remove them when they hold nothing."""
        for block in self._blocks:
            block.close()
        if all(read_block(block.path) is None for block in self._blocks):
            shutil.rmtree(self.folder, ignore_errors=True)


def spooled(root: Path, is_alive: Callable[[str], bool]) -> Iterator[tuple[Path, bytes]]:
    """The records that dead boots left, with their files; a boot that lives keeps its own."""
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if not folder.is_dir() or folder.name in (ORPHANS, FOREIGN) or is_alive(folder.name):
            continue
        for path in sorted(folder.glob("*.block")):
            record = read_block(path)
            if record is not None:
                yield path, record


def forget_folders(root: Path, is_alive: Callable[[str], bool]) -> None:
    """Remove the folders of dead boots that hold no record any more."""
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if not folder.is_dir() or folder.name in (ORPHANS, FOREIGN) or is_alive(folder.name):
            continue
        if all(read_block(path) is None for path in folder.glob("*.block")):
            shutil.rmtree(folder, ignore_errors=True)


def set_aside(path: Path, root: Path) -> Path:
    """Move a record that belongs to another ledger out of the way, where an operator finds it."""
    aside = root / FOREIGN
    aside.mkdir(mode=0o700, exist_ok=True)
    target = aside / f"{path.parent.name}.{path.name}"
    with contextlib.suppress(FileNotFoundError):  # another process was first
        path.rename(target)
    return target
