"""Reads the files that are named on the command line, with a plain sentence for each that cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from interlock.errors import GiveUpError, NotFoundError, NotJsonError

LINE_BYTES_MAX = 4_194_304
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SKIPPED_BYTES = 1_048_576


def read_named(path: Path) -> bytes:
    """The bytes of a file, or of standard input for `-`.

    Raises NotFoundError, or GiveUpError(FILE_UNUSABLE) for a folder or a name that no file can have. What an
    account may not read stays the PermissionError that it is.
    """
    stream = open_named(path)
    if stream is sys.stdin.buffer:
        return stream.read()
    with stream:
        return stream.read()


def open_named(path: Path) -> BinaryIO:
    """The file, open to be read, or standard input for `-`; raises what `read_named` raises."""
    if str(path) == "-":
        return sys.stdin.buffer
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise NotFoundError("file", str(path)) from error
    except IsADirectoryError as error:
        raise GiveUpError("FILE_UNUSABLE", f"{path} is a folder, and a file is wanted") from error


def numbered_lines(
    stream: BinaryIO, size_bytes_max: int = LINE_BYTES_MAX
) -> Iterator[tuple[int, bytes | NotJsonError]]:
    """Each line that is not blank, with its number from 1, or why it cannot be used; one line at a time.

    A longer line is skipped without being held, and a byte order mark is no part of any line.
    """
    number = 0
    while line := stream.readline(size_bytes_max + 1):
        number += 1
        if len(line) > size_bytes_max and not line.endswith(b"\n"):
            _skip_line(stream)
            yield number, NotJsonError("JSON_SIZE", f"more than {size_bytes_max} bytes")
        elif number == 1 and line.startswith(_BYTE_ORDER_MARK):
            yield number, NotJsonError("JSON_ENCODING", "begins with a byte order mark", 0)
        elif not line.isspace():
            yield number, line


def _skip_line(stream: BinaryIO) -> None:
    while rest := stream.readline(_SKIPPED_BYTES):
        if rest.endswith(b"\n"):
            return
