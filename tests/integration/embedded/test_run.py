"""Single roles in the foreground, on a broker and a database that settings name: no `up` anywhere."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.support.source import ROOT
from tests.support.store import LEDGER_URL, store_settings
from tests.support.valkey import ValkeyServer, valkey_server
from tests.support.wait import until

ROLES = (("governor",), ("scheduler",), ("projector",), ("pool", "pure"), ("pool", "pure"), ("governor",))
KINDS = (*ROLES[:4], ("pool", "shell"))
INTERLOCK = (sys.executable, "-m", "gateway.cli.main")


def start(arguments: tuple[str, ...], data: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """One role, from the moment on at which its process exists."""
    line = [*INTERLOCK, "run", *arguments, "--data", str(data)]
    return subprocess.Popen(line, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)


def listens(process: subprocess.Popen[bytes]) -> bool:
    """Whether the program reacts to SIGTERM by itself: until then it ends a process that is not ours yet."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def waits_for_a_lock(process: subprocess.Popen[bytes]) -> bool:
    """Whether it stands before a lock that somebody else holds."""
    waiting = [line.split() for line in Path("/proc/locks").read_text("ascii").splitlines() if "->" in line]
    return str(process.pid) in {fields[5] for fields in waiting}


@contextmanager
def ended(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    """At the end of the block all are told to stop, and end in order."""
    try:
        yield
        for process in processes:
            until(partial(listens, process), 30, "it listens")
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_roles_of_their_own_serve_what_is_submitted(store: str, tmp_path: Path, short_tmp_path: Path) -> None:
    with ExitStack() as stack:
        server: ValkeyServer = stack.enter_context(valkey_server(short_tmp_path))
        settings = stack.enter_context(store_settings(store))
        environment = {**os.environ, **settings, "INTERLOCK_BROKER_URL": server.celery_url}
        data = tmp_path / "data"
        stack.enter_context(ended(*(start(arguments, data, environment) for arguments in ROLES)))
        # A process has its lock once the directory and its ledger are made.
        until(lambda: [*(data / "run" / "boots").glob("*.lock")], 60, "there is a ledger")
        submit = [*INTERLOCK, "submit", "echo", "--args", '{"value":1}', "--wait", "60", "--json"]
        done = subprocess.run(
            [*submit, "--data", str(data)], cwd=ROOT, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done
        assert json.loads(done.stdout)["output"] == {"value": 1}
        assert (data / "ledger.db").exists() == (LEDGER_URL not in settings)


@pytest.mark.parametrize(
    ("moment", "kinds"),
    [("at once", KINDS), ("before its stores", (("scheduler",), ("pool", "shell"))), ("connecting", KINDS)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_role_that_still_starts_ends_in_order(
    moment: str, kinds: tuple[tuple[str, ...], ...], tmp_path: Path, short_tmp_path: Path
) -> None:
    data = tmp_path / "data"
    (data / "run").mkdir(parents=True)
    data.chmod(0o700)
    with valkey_server(short_tmp_path) as server, open(data / "run" / "set-up.lock", "w") as lock:
        watcher = server.client()
        if moment == "before its stores":
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Whoever idles would wait for an hour.
        settings = {"INTERLOCK_BROKER_URL": server.celery_url, "INTERLOCK_POLL_MS": "3600000"}
        environment = {**os.environ, **settings}
        processes = [start(kind, data, environment) for kind in kinds]
        with ended(*processes):
            if moment == "before its stores":
                until(lambda: all(map(waits_for_a_lock, processes)), 60, "all wait for the lock")
            if moment == "connecting":
                until(lambda: len(watcher.client_list()) > 1, 60, "the first is connected")
