"""A system in a process of its own, started as `interlock up` starts it and ended with the block.

For whoever watches a whole system from outside: the demonstration, the benchmarks, the tests.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gateway.embedded.directory import DataDirectory
from gateway.embedded.ready import read_ready
from interlock.errors import OursToFixError

PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.02


@contextmanager
def system_apart(
    directory: DataDirectory,
    *,
    module: str = "gateway.cli",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    output: int | IO[bytes] = subprocess.DEVNULL,
    errors: int | IO[bytes] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of `up` on `directory`, ready; OursToFixError (NOT_RUNNING) when it does not become ready.

    It starts in `folder`, with this process's environment unless told another. It has `patience_seconds` to
    become ready, and as long to end before it is killed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, "up", "--data", str(directory.path)],
        stdout=output,
        stderr=errors,
        env=environment,
        cwd=folder,
    )
    try:
        _await_ready(process, directory, patience_seconds)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], directory: DataDirectory, seconds: float) -> None:
    pause, give_up_at = threading.Event(), time.monotonic() + seconds
    while read_ready(directory) is None:
        if process.poll() is not None or time.monotonic() > give_up_at:
            raise OursToFixError("NOT_RUNNING", f"the system did not become ready on {directory.path}")
        pause.wait(LOOK_SECONDS)
