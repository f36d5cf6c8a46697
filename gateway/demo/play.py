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
from gateway.embedded.directory import DataDirectory
from gateway.embedded.settled import run_settled

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
        yield data
        return
    folder = Path(tempfile.mkdtemp(prefix="interlock-demo-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _play(directory: DataDirectory, as_json: bool) -> int:
    from gateway.demo.scene import play
    from gateway.demo.tell import tell

    outcome = play(directory, SESSION)
    if as_json:
        print(json.dumps(outcome.to_json(), sort_keys=True))  # noqa: T201 - the one document
    else:
        tell(outcome)
    return 0 if outcome.is_good else 1
