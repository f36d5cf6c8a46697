"""A reader that goes away ends a command quietly."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from tests.support.live import FACES, Live
from tests.support.source import ROOT


@pytest.mark.parametrize("reader", ["head -n 1", "false"])
@pytest.mark.parametrize("options", ["--follow", ""])
def test_sp_16_a_closed_pipe_is_no_error(live: Live, reader: str, options: str) -> None:
    FACES["queue"].submit(live, "echo", '{"value": 1}')
    with live.ledger.read() as view:
        before = view.last_seq()
    python, data = shlex.quote(sys.executable), shlex.quote(str(live.directory.path))
    program = f"{python} -m gateway.cli log {options} --data {data}"
    line = f"{program} | {reader}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, check=False, timeout=30)
    assert done.returncode in (0, 141), done.stderr.decode()
    assert b"Traceback" not in done.stderr
    with live.ledger.read() as view:
        assert view.last_seq() >= before
