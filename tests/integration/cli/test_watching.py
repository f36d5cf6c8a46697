"""`watch` on real directories: once, line by line, as JSON, on a terminal; and it changes nothing."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from governance.catalogue import builtin_tools
from tests.integration.cli.support import Directory
from tests.support.source import ROOT
from tests.support.wait import until


def test_one_look_tells_phases_pools_and_what_waits(stopped: Directory) -> None:
    before = stopped.files()
    said = stopped.run("watch", "--once", "--json")
    assert (said.status, said.err) == (0, "")
    look = said.json
    assert look["phases"]["awaiting_approval"] == len(look["approvals"]) > 0
    assert {one["tool"] for one in look["approvals"]} >= {"pay", "shell.run"}
    assert all(one["seconds_left"] >= 0 for one in look["approvals"])
    assert look["phases"]["done"] == 3
    assert (look["projector"]["lag"], look["relay"]["state"]) == (0, "unknown")
    assert {one["pool"] for one in look["pools"]} >= {tool.pool for tool in builtin_tools()}
    assert stopped.files() == before


def test_one_session_is_looked_at_by_itself(stopped: Directory) -> None:
    whole = stopped.run("watch", "--once", "--json").json
    mine = stopped.run("watch", "--once", "--json", "--session", "s").json
    other = stopped.run("watch", "--once", "--json", "--session", "s", "--tenant", "another").json
    assert mine["phases"] == whole["phases"]
    assert sum(other["phases"].values()) == 0
    assert other["approvals"] == other["running"] == []


def test_one_look_for_a_person(stopped: Directory) -> None:
    said = stopped.run("watch", "--once")
    assert said.status == 0
    assert "waits for an approval" in said.out
    assert "shell.run" in said.out
    assert "\x1b" not in said.out


def test_a_pipe_gets_a_line_and_another_only_when_something_changed(running: Directory) -> None:
    with watching(running, "--interval", "0.1") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert "event" in first
        running.run("submit", "echo", "--args", '{"value": 1}', "--wait", "20")
        assert "done" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_json_is_a_document_a_look(running: Directory) -> None:
    with watching(running, "--json", "--interval", "0.1") as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert looks[0]["accepted_per_s"] is None
        running.run("submit", "echo", "--args", '{"value": 1}', "--wait", "20")
        wanted = looks[0]["phases"]["done"] + 1
        look = looks[-1]
        while (
            look["phases"]["done"] < wanted
            or look["relay"]["state"] != "published"
            or look["projector"]["lag"]
        ):
            look = json.loads(process.stdout.readline())
        assert look["relay"]["lag"] == 0
        process.stdout.close()
        assert process.wait(10) == 141


def test_a_directory_without_a_ledger_is_said_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    said = Directory(tmp_path_factory.mktemp("empty")).run("watch", "--once")
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith("NOT_FOUND")


def test_a_terminal_gets_tables_and_an_interruption_ends_them_quietly(stopped: Directory) -> None:
    with on_terminal(stopped.command("watch", "--interval", "0.1"), 60, NO_COLOR="1") as (process, seen):
        # More than one look, in the same place.
        until(lambda: seen().count("projector") >= 3, 20, "it looks again")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        text = seen()
    assert "pay" in text
    assert "\x1b[?25h" in text  # the cursor is given back
    assert "Traceback" not in text
    assert "\x1b[3" not in text  # no colour


@contextmanager
def watching(directory: Directory, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`watch` with its output read through a pipe; ended with the block."""
    process = subprocess.Popen(
        directory.command("watch", *options),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def on_terminal(
    command: list[str], columns: int, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """A command on a terminal of its own, and all that it has written there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    os.set_blocking(master, False)
    given: Mapping[str, str] = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, start_new_session=True,
        env={**given, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(slave)
    held = bytearray()

    def seen() -> str:
        try:
            while data := os.read(master, 65_536):
                held.extend(data)
        except OSError:
            pass  # nothing more now, or the other end is closed
        return held.decode(errors="replace")

    try:
        yield process, seen
    finally:
        process.kill()
        process.wait()
        os.close(master)
