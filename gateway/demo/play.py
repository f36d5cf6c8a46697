"""Plays the demonstration: starts the system on a new directory, lets an agent and a bot work, tells of it.

Everything is real: the system that `up` starts, its queue, its sandbox, a second process with the bot's key.
It leaves nothing behind unless it is told where to keep its data.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.embedded.apart import system_apart
from gateway.embedded.broker import is_ready
from gateway.embedded.directory import DataDirectory
from gateway.embedded.error import DataDirectoryError
from gateway.embedded.settled import run_settled
from interlock.errors import AlreadyRunningError

SESSION = "demo"


def main(*, as_json: bool = False, data: Path | None = None) -> int:
    """Play it; 0 when everything came out as it must."""
    with _folder(data) as folder:
        directory = DataDirectory.at(folder / "data")
        with system_apart(directory):
            return run_settled(directory, "demo", lambda: _play(directory, as_json))


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """Where the data goes: the given folder, which stays, or one that every account may enter, which goes."""
    if data is not None:
        _require_free(data)
        yield data
        return
    folder = Path(tempfile.mkdtemp(prefix="interlock-demo-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_free(folder: Path) -> None:
    """The demonstration makes a directory of its own below the folder, and disturbs no system."""
    for directory in (DataDirectory.at(folder), DataDirectory.at(folder / "data")):
        if is_ready(directory):
            raise AlreadyRunningError(str(directory.path))
    if DataDirectory.at(folder).layout.exists():
        raise DataDirectoryError(folder, "is a system's data directory: name another folder")
    if folder.exists() and not folder.is_dir():
        raise DataDirectoryError(folder, "is no folder")


def _play(directory: DataDirectory, as_json: bool) -> int:
    from gateway.demo.scene import play
    from gateway.demo.tell import tell

    outcome = play(directory, SESSION)
    if as_json:
        print(json.dumps(outcome.to_json(), sort_keys=True))  # noqa: T201 - the one document
    else:
        tell(outcome)
    return 0 if outcome.is_good else 1
