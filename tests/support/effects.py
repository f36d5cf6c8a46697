"""The effect ledger: what really happened in the workspaces, which the system itself never looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

EFFECTS = "effects"
WRITTEN = "written-"


def effects_of(workspaces: Path) -> Counter[str]:
    """How often each nonce was written, over all sessions: lines of the shell, files of `fs.write`."""
    found: Counter[str] = Counter()
    for folder in sorted(workspaces.iterdir()) if workspaces.is_dir() else ():
        found.update(_lines(folder / EFFECTS))
        found.update(_files(folder))
    return found


def _lines(file: Path) -> Iterable[str]:
    return file.read_text().split() if file.exists() else ()


def _files(folder: Path) -> Iterable[str]:
    """A file counts once, by its name, and only with the content that was asked for."""
    for file in folder.glob(f"{WRITTEN}*"):
        nonce = file.name.removeprefix(WRITTEN)
        yield nonce if file.read_text() == nonce else f"{nonce} with other content"
