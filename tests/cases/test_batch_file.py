"""Files of a batch as people make them: bad lines are named by number, and nothing else suffers from them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.identifier import new_id
from tests.support.live import Live, running
from tests.support.source import ROOT


def line(value: Any = 1, **fields: Any) -> bytes:
    said = {"tool": "echo", "session": "files", "stage": new_id(), "arguments": {"value": value}, **fields}
    return json.dumps(said).encode()


def submit(live: Live, data: bytes, *options: str) -> tuple[int, list[Mapping[str, Any]], str]:
    """Exit code, the answers, and what stood on standard error."""
    done = live.command("submit", "--batch", "-", "--json", *options, stdin=data, seconds=60)
    assert b"Traceback" not in done.stderr
    return done.returncode, [json.loads(said) for said in done.stdout.splitlines()], done.stderr.decode()


def told(answers: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str | None]]:
    return [(one["line"], one["answer"], one["code"]) for one in answers]


def test_bad_lines_are_named_by_number_and_the_others_go_on(live: Live) -> None:
    lines = [
        b"\xef\xbb\xbf" + line(),
        line() + b"\r",
        b"",
        b"\r",
        b'{"tool":"echo","arguments":{"value":"\x00"}}',
        b'{"tool":"echo","arguments":{"value":"\xff"}}',
        b"\x00\x00",
        line("x" * 2_000_000),
        b'{"tool":"echo","arguments":{"value":"' + b"x" * 5_000_000 + b'"}}',
        b'{"tool":"echo","arguments":{"value":1}',
        line(nonsense=1),
        line("last"),
    ]
    status, answers, _ = submit(live, b"\n".join(lines))
    assert status == 4
    assert told(answers) == [
        (1, "refused", "JSON_ENCODING"),
        (2, "accepted", None),
        (5, "refused", "JSON_NUL"),
        (6, "refused", "JSON_ENCODING"),
        (7, "refused", "JSON_SYNTAX"),
        (8, "refused", "JSON_SIZE"),
        (9, "refused", "JSON_SIZE"),
        (10, "refused", "JSON_SYNTAX"),
        (11, "refused", "UNKNOWN_FIELD"),
        (12, "accepted", None),
    ]


def test_an_id_and_a_key_that_come_twice_are_one_call(live: Live) -> None:
    chosen, key = new_id(), new_id()
    same = {"session": "files", "stage": "twice"}
    lines = [
        line(1, id=chosen, **same),
        line(1, id=chosen, **same),
        line(2, id=chosen, **same),
        line(3, key=key, **same),
        line(3, key=key, **same),
        line(4, key=key, **same),
    ]
    status, answers, _ = submit(live, b"\n".join(lines) + b"\n", "--wait", "20")
    assert status == 4
    assert told(answers) == [
        (1, "accepted", None),
        (2, "duplicate", None),
        (3, "refused", "ID_CONFLICT"),
        (4, "accepted", None),
        (5, "duplicate", None),
        (6, "refused", "KEY_REUSED"),
    ]
    assert answers[3]["invocation_id"] == answers[4]["invocation_id"]
    assert [one["output"] for one in answers] == [{"value": n} if n else None for n in (1, 1, 0, 3, 3, 0)]


@pytest.mark.parametrize("data", [b"", b"\n\r\n \n"])
def test_a_file_without_a_line_says_so(live: Live, data: bytes) -> None:
    assert submit(live, data) == (0, [], "")
    done = live.command("submit", "--batch", "-", stdin=data)
    assert done.stdout == b"nothing was in it: no line, so nothing was proposed\n"


def test_many_lines_are_answered_in_their_order(live: Live) -> None:
    status, answers, errors = submit(live, b"\n".join(line(n) for n in range(2_600)), "--wait", "40")
    assert (status, errors) == (0, "")
    assert [one["output"]["value"] for one in answers] == list(range(2_600))


def test_a_reader_that_goes_away_ends_it_quietly(live: Live, folder: Path) -> None:
    file = folder / "lines.jsonl"
    file.write_bytes(b"\n".join(line(n) for n in range(5_000)))
    with batch(live, file) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_an_interruption_tells_what_was_sent_and_sends_nothing_more(live: Live, folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    with batch(live, pipe) as process, pipe.open("wb") as lines:
        assert process.stdout is not None
        assert process.stderr is not None
        lines.write(b"\n".join(line(n) for n in range(1_100)) + b"\n")
        lines.flush()
        # Two portions are on their way, and it waits for the rest of the third.
        first = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read().splitlines()
        assert process.wait(30) == 130
        assert first["line"] == 1
        assert [json.loads(one)["line"] for one in rest] == list(range(2, 1_001))
        said = process.stderr.read().decode()
        assert said == "interrupted: 1000 lines have their answer; nothing after line 1000 was sent\n"


def test_a_system_that_goes_away_leaves_every_line_certain_or_named(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with batch(system, pipe) as process, pipe.open("wb") as lines:
            assert process.stdout is not None
            assert process.stderr is not None
            lines.write(b"\n".join(line(n) for n in range(1_100)) + b"\n")
            lines.flush()
            before = [json.loads(process.stdout.readline()) for _ in range(500)]
            system.process.terminate()
            system.process.wait(30)
            # It waited for the rest of its third portion, which it cannot send any more.
            lines.write(b"\n".join(line(n) for n in range(400)) + b"\n" + line() + b"\n")
            lines.close()
            after = [json.loads(one) for one in process.stdout.read().splitlines()]
            assert process.wait(60) in (1, 4)
            said = process.stderr.read().decode()
        assert {one["answer"] for one in before} == {"accepted"}
        assert [one["line"] for one in after] == list(range(501, 1_501))
        codes = {one["code"] for one in after}
        assert codes <= {None, "NOT_ACCEPTED", "ACCEPTANCE_UNKNOWN", "BROKER_UNAVAILABLE"}
        assert after[-1]["code"] == "BROKER_UNAVAILABLE"
        assert said.count("\n") == 1
        assert "nothing after line 1500 was sent" in said


@contextmanager
def batch(live: Live, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running `submit --batch`."""
    words = ["submit", "--batch", str(file), "--json", "--data", str(live.directory.path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
