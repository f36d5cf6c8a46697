"""The README does what it says: its shell session and its Python are run as they stand there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source import ROOT
from tests.support.wait import until

README = (ROOT / "README.md").read_text("utf-8")
SHIM = """#!/bin/sh
# ./run, with the environment that the tests run in.
export INTERLOCK_COMMAND=./run PYTHONPATH={root}
if [ "$1" = python ]; then shift; exec {python} "$@"; fi
exec {python} -m gateway.cli.main "$@"
"""


def block_after(heading: str, language: str = "", page: str = README) -> str:
    """The first fenced block of a language behind a line."""
    rest = page.split(heading, 1)[1]
    found = re.search(rf"^```{language}\n(.*?)^```$", rest, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


SESSION = block_after("## A first session").splitlines()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a `./run`, in which the first line of the session runs the system."""
    folder = tmp_path_factory.mktemp("readme")
    shim = folder / "run"
    shim.write_text(SHIM.format(root=ROOT, python=sys.executable), encoding="utf-8")
    shim.chmod(0o755)
    up = subprocess.Popen(
        ["bash", "-c", f"exec {SESSION[0]}"], cwd=folder, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        until((folder / ".data" / "ready.json").exists, 30, "the system of the README is ready")
        yield folder
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)


def bash(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "INTERLOCK_DATA": str(folder / ".data")},
    )


def test_the_shell_session_does_what_it_says(checkout: Path) -> None:
    identifier = ""
    assert SESSION[1].startswith("export INTERLOCK_DATA=$PWD/.data")
    for line in SESSION[2:]:
        done = bash(checkout, re.sub(r"\bID\b", identifier, line.split("  #")[0]))
        assert done.returncode == (3 if "# parked" in line else 0), (line, done.stdout, done.stderr)
        found = re.search(r"^invocation +(\S+)$", done.stdout, re.MULTILINE)
        identifier = found[1] if found else identifier
        if "# parked" in line:
            assert f"./run approve {identifier}" in done.stdout + done.stderr
        if line.startswith("./run inbox"):
            assert f"./run approve {identifier}" in done.stdout


def test_the_python_does_what_it_says(checkout: Path) -> None:
    (checkout / "hello.py").write_text(block_after("From Python", "python"), encoding="utf-8")
    done = bash(checkout, block_after("Run it with the environment").strip())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("COMPLETED ")


def test_any_celery_producer_proposes_as_the_page_of_the_wire_says(checkout: Path) -> None:
    page = (ROOT / "docs" / "wire" / "README.md").read_text("utf-8")
    program = block_after("## Proposing from any Celery producer", "python", page)
    (checkout / "producer.py").write_text(program, encoding="utf-8")
    done = bash(checkout, "./run python producer.py")
    assert done.returncode == 0, done.stderr
    assert "'status': 'accepted'" in done.stdout
