"""Reads the files that are named on the command line, with a plain sentence for each that cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path

from interlock.errors import GiveUpError, NotFoundError


def read_named(path: Path) -> bytes:
    """The bytes of a file, or of standard input for `-`.

    Raises NotFoundError, or GiveUpError(FILE_UNUSABLE) for a folder or a name that no file can have. What an
    account may not read stays the PermissionError that it is.
    """
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError("file", str(path)) from error
    except IsADirectoryError as error:
        raise GiveUpError("FILE_UNUSABLE", f"{path} is a folder, and a file is wanted") from error
