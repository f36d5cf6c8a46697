"""Single roles in the foreground, on a broker and a database that settings name: no `up` anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.source import ROOT
from tests.support.store import LEDGER_URL, store_settings
from tests.support.valkey import ValkeyServer, valkey_server
from tests.support.wait import until

ROLES = (("governor",), ("scheduler",), ("projector",), ("pool", "pure"), ("pool", "pure"), ("governor",))
INTERLOCK = (sys.executable, "-m", "gateway.cli.main")


@contextmanager
def role(arguments: tuple[str, ...], data: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """One role until the end of the block; it ends in order."""
    line = [*INTERLOCK, "run", *arguments, "--data", str(data)]
    process = subprocess.Popen(line, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
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
        stack.enter_context(role(ROLES[0], data, environment))
        # A process has its lock once the directory and its ledger are made.
        until(lambda: [*(data / "run" / "boots").glob("*.lock")], 20, "there is a ledger")
        for arguments in ROLES[1:]:
            stack.enter_context(role(arguments, data, environment))
        submit = [*INTERLOCK, "submit", "echo", "--args", '{"value":1}', "--wait", "20", "--json"]
        done = subprocess.run(
            [*submit, "--data", str(data)], cwd=ROOT, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done
        assert json.loads(done.stdout)["output"] == {"value": 1}
        assert (data / "ledger.db").exists() == (LEDGER_URL not in settings)
