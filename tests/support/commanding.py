"""Runs commands of the product without paying each time for what they import: each is forked off one process.

A command is still a process of its own, with its own descriptors, environment, folder and exit code. Root
gives itself up before anything is imported, so as root, and where no server runs, it is started as usual.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.cli.main import FOREGROUND
from tests.support.source import ROOT
from tests.support.wait import until

SERVER = "INTERLOCK_TEST_COMMANDS"
"""Names the socket of the run's server."""
START_SECONDS = 60.0
MEANT_FOR_COMMANDS = (
    "gateway.embedded.environment",
    "gateway.examination",
    "gateway.proof",
    "gateway.reading",
    "gateway.refold",
    "gateway.replay",
    "gateway.waiting",
    "interlock.client",
    "workers.rebuild",
)


def run_command(
    words: Sequence[str],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    seconds: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Run `interlock WORDS` to its end; subprocess.TimeoutExpired after `seconds`, when it is killed."""
    given = dict(os.environ if environment is None else environment)
    path = os.environ.get(SERVER)
    line = [sys.executable, "-m", "gateway.cli.main", *words]
    if path is None or os.geteuid() == 0 or words[0] in FOREGROUND:
        return subprocess.run(
            line, input=stdin, capture_output=True, cwd=ROOT, env=given, check=False, timeout=seconds
        )
    with tempfile.TemporaryFile() as fed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        fed.write(stdin)
        fed.seek(0)
        asked = {"words": list(words), "environment": given}
        with socket.socket(socket.AF_UNIX) as line_to_server:
            line_to_server.connect(path)
            data = json.dumps(asked).encode() + b"\n"
            sent = socket.send_fds(line_to_server, [data], [fed.fileno(), out.fileno(), err.fileno()])
            line_to_server.sendall(data[sent:])
            line_to_server.settimeout(seconds)
            try:
                status = int(line_to_server.recv(16))
            except TimeoutError:
                raise subprocess.TimeoutExpired(line, seconds) from None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(line, status, out.read(), err.read())


@contextmanager
def command_server() -> Iterator[None]:
    """A server for all commands of a run; nothing where one runs already."""
    if SERVER in os.environ:
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="k"))
    path = folder / "s"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.commanding", str(path)], cwd=ROOT, stdin=subprocess.PIPE
    )
    try:
        until(lambda: path.exists() or process.poll() is not None, START_SECONDS, "commands can be run")
        assert process.poll() is None
        os.environ[SERVER] = str(path)
        yield
    finally:
        os.environ.pop(SERVER, None)
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def serve(path: str) -> None:
    """Fork a process for each that connects, until standard input ends."""
    _import_all()
    gc.freeze()
    # Whoever answers a caller is waited for by nobody.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(64)
        os.rename(f"{path}.new", path)
        while True:
            ready, _, _ = select.select([0, listener.fileno()], [], [])
            if 0 in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(connection)
            connection.close()


def _import_all() -> None:
    """What commands import when they are run."""
    from gateway.cli.app import build
    from gateway.preload import import_shared

    import_shared(with_postgres=True)
    for name in MEANT_FOR_COMMANDS:
        importlib.import_module(name)
    build()


def _answer(connection: socket.socket) -> None:
    """Run what one caller asks for, and say how it ended; never returns."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        while not data.endswith(b"\n"):
            data += connection.recv(1 << 20)
        child = os.fork()
        if child == 0:
            connection.close()
            _become(json.loads(data), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(str(_wait_for(child, connection)).encode())
    finally:
        os._exit(0)


def _wait_for(child: int, connection: socket.socket) -> int:
    """The exit status; where the caller goes away before, the command is killed."""
    pidfd = os.pidfd_open(child)
    ready, _, _ = select.select([pidfd, connection.fileno()], [], [])
    if pidfd not in ready:
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(asked: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Be the command; never returns."""
    status = 70
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(asked["environment"])
        from gateway.cli import main

        sys.argv = [str(main.__file__), *asked["words"]]
        status = main.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
