"""Where the data of a run lies: on a disk, never in memory; and how long that disk takes to be sure."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.figure import percentile
from gateway.embedded.directory import MEMORY_FILESYSTEMS, NETWORK_FILESYSTEMS
from gateway.embedded.kernel import filesystem_type
from interlock.errors import UsageError

PAGE = b"\0" * 4096


def refuse_unless_disk(folder: Path, kind: int) -> None:
    """UsageError where `kind`, the file system type that holds `folder`, is memory or a network."""
    name = MEMORY_FILESYSTEMS.get(kind) or NETWORK_FILESYSTEMS.get(kind)
    if name is not None:
        raise UsageError(
            f"{folder} lies on {name}, where no figure means anything: name a disk with --folder"
        )


def choose_folder(given: Path | None, candidates: Iterable[Path]) -> Path:
    """A new folder of our own below `given`, else below the first candidate that is a disk.

    Raises UsageError where there is none.
    """
    places = [given.absolute()] if given is not None else [path for path in candidates if path.is_dir()]
    refused: UsageError | None = None
    for place in places:
        try:
            refuse_unless_disk(place, filesystem_type(place))
            # Every account may enter it: started as root, another account works here.
            folder = Path(tempfile.mkdtemp(prefix="interlock-bench-", dir=place))
        except UsageError as error:
            refused = error
        except OSError as error:
            refused = UsageError(f"{place}: {error.strerror}")
        else:
            folder.chmod(0o755)
            return folder
    raise refused or UsageError("no folder on a disk was found: name one with --folder")


def fdatasync_p50_ms(folder: Path, count: int) -> float:
    """The median time of a page written and made durable in `folder`, in milliseconds."""
    path = folder / "fsync.probe"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    taken = []
    try:
        for _ in range(count):
            began = time.perf_counter()
            os.write(descriptor, PAGE)
            os.fdatasync(descriptor)
            taken.append((time.perf_counter() - began) * 1_000)
    finally:
        os.close(descriptor)
        path.unlink()
    return round(percentile(taken, 50), 3)
