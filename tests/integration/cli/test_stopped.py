"""A stopped system's directory is read as it is: every reading command works, and none leaves a trace."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from gateway.embedded.directory import DataDirectory
from gateway.embedded.ledger_note import server_of
from gateway.store import open_ledger
from governance.session import open_session
from interlock.tier import SessionMode
from tests.integration.cli.support import Directory
from tests.support.commanding import SERVER
from tests.support.source import ROOT
from tests.support.store import give_places, wanted

READING = [
    ("show", "{granted}"),
    ("show", "{denied}"),
    ("log",),
    ("log", "--session", "s"),
    ("state", "s"),
    ("inbox",),
    ("rebuild",),
    ("replay", "s"),
    ("tools", "list"),
    ("tools", "show", "note"),
    ("sessions", "show", "s"),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_reading_command_works_and_leaves_no_trace(
    stopped: Directory, command: tuple[str, ...], form: tuple[str, ...]
) -> None:
    before = stopped.files()
    said = stopped.run(*(part.format(**stopped.ids) for part in command), *form)
    assert (said.status, said.err) == (0, "")
    assert stopped.files() == before
    if form:
        assert [json.loads(line) for line in said.out.splitlines()]
        assert said.out.isascii()


def test_doctor_reads_what_is_there_and_names_every_check(stopped: Directory) -> None:
    before = set(stopped.files())
    said = stopped.run("doctor", "--json")
    checks = {check["name"]: check for check in said.json["checks"]}
    assert {"account", "trust_domain", "ledger", "formats", "sandbox", "keys", "backlog"} <= checks.keys()
    assert all(set(check) == {"name", "state", "detail", "remedy"} for check in checks.values())
    assert checks["ledger"]["state"] == "ok"
    durable = "synchronous=2" if wanted() == "sqlite" else "synchronous_commit=on"
    assert durable in checks["ledger"]["detail"]
    assert "awaiting_approval 2" in checks["backlog"]["detail"]
    assert set(stopped.files()) == before


def test_doctor_names_a_key_that_others_can_read(stopped: Directory) -> None:
    key = stopped.data.keys / "governance.key"
    key.write_text("00" * 32)
    key.chmod(0o644)
    said = stopped.run("doctor", "--json")
    [check] = [check for check in said.json["checks"] if check["name"] == "keys"]
    assert (said.status, check["state"]) == (1, "failed")
    assert str(key) in check["remedy"]


def test_show_tells_decisions_and_causes(stopped: Directory) -> None:
    shown = stopped.run("show", stopped.ids["denied"], "--json").json
    assert shown["record"]["status"] == "REJECTED"
    assert [link["what"] for link in shown["causes"]][-1] == "submission"
    assert shown["approvals"]["votes"][0]["vote"]["reason"] == "no"


def test_no_command_shows_a_sensitive_value(stopped: Directory) -> None:
    said = [
        stopped.run("log"),
        stopped.run("show", stopped.ids["secret"]),
        stopped.run("show", stopped.ids["secret"], "--json"),
    ]
    assert all("t0ken" not in one.out and "$sealed" not in one.out for one in said)
    assert "[masked]" in said[1].out


def test_the_log_is_in_order_and_begins_where_it_is_told(stopped: Directory) -> None:
    lines = stopped.run("log").lines
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert [line["seq"] for line in stopped.run("log", "--after", "3").lines] == [
        line["seq"] for line in lines
    ][3:]
    of_session = stopped.run("log", "--session", "s").lines
    assert {line["session"] for line in of_session} == {"s"}


def change_views(directory: DataDirectory) -> None:
    """Say of what was rejected that it completed."""
    url = server_of(directory)
    if not url:
        changed = "CAST(replace(CAST(body AS TEXT), 'REJECTED', 'COMPLETED') AS BLOB)"
        with closing(sqlite3.connect(directory.views)) as file, file:
            file.execute(f"UPDATE projection_record SET body = {changed}")
        return
    changed = "convert_to(replace(convert_from(body, 'UTF8'), 'REJECTED', 'COMPLETED'), 'UTF8')"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"UPDATE views.record SET body = {changed}".encode())


def test_rebuild_finds_a_view_that_was_changed(stopped: Directory) -> None:
    change_views(stopped.data)
    said = stopped.run("rebuild", "--json")
    differing = [difference["session"] for difference in said.json["differences"]]
    assert (said.status, said.json["equal"], differing) == (1, False, ["s"])
    assert "s differs: " in stopped.run("rebuild").out
    assert stopped.run("replay", "s", "--json").json["equal"] is False


def test_replay_answers_without_executing(stopped: Directory) -> None:
    said = stopped.run("replay", "s", "--json").json
    assert (said["executions"], said["equal"]) == (0, True)
    results = {one["invocation_id"]: one["result"] for one in said["answers"]}
    assert results[stopped.ids["granted"]] is None
    assert results[stopped.ids["denied"]]["reason"] == "APPROVAL_DENIED"


def test_the_inbox_hides_nothing(stopped: Directory) -> None:
    said = stopped.run("inbox")
    assert "\u202e" not in said.out
    assert "/home\\u202e txt.etadpu" in said.out
    assert said.out.index("pay version") < said.out.index("shell.run version")
    requests = stopped.run("inbox", "--json").json["requests"]
    assert requests[1]["arguments"] == {"argv": ["rm", "-rf", "/home\u202e txt.etadpu"]}
    assert requests[1]["hidden"] == ["U+202E RIGHT-TO-LEFT OVERRIDE"]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status", "code"),
    [
        (("show", "nobody"), 1, "NOT_FOUND"),
        (("tools", "show", "nothing"), 1, "NOT_FOUND"),
        (("sessions", "show", "nobody"), 1, "NOT_FOUND"),
        (("replay", "nobody"), 1, "NOT_FOUND"),
        (("submit", "echo", "--args", "{}"), 1, "NOT_RUNNING"),
        (("approve", "x"), 1, "NOT_RUNNING"),
        (("deny", "x", "--reason", "r"), 1, "NOT_RUNNING"),
        (("cancel", "x"), 1, "NOT_RUNNING"),
        (("sessions", "open", "t", "--mode", "edit"), 1, "NOT_RUNNING"),
        (("sessions", "open", "t", "--mode", "root"), 2, "USAGE"),
        (("sessions", "open", "..", "--mode", "edit"), 2, "USAGE"),
        (("deny", "x"), 2, "USAGE"),
        (("submit", "echo"), 2, "USAGE"),
        (("log", "--after", "-1"), 2, "USAGE"),
        (("nonsense",), 2, "USAGE"),
        (("run", "nonsense"), 2, "USAGE"),
        (("run", "pool", "nonsense"), 2, "USAGE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_refusal_is_one_line_with_its_code_and_what_to_do(
    stopped: Directory, command: tuple[str, ...], status: int, code: str
) -> None:
    said = stopped.run(*command)
    assert (said.status, said.out) == (status, "")
    [line] = said.err.splitlines()
    assert line.startswith(f"{code}: ")
    assert line.endswith(")")


def test_a_directory_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    missing = Directory(tmp_path / "missing")
    for command in (("log",), ("state", "s"), ("inbox",), ("verify",), ("tools", "list"), ("rebuild",)):
        said = missing.run(*command)
        assert (said.status, said.err.split(":")[0]) == (1, "NOT_FOUND")
    assert missing.run("doctor", "--json").status in (0, 1)
    assert not missing.path.exists()


@pytest.mark.sqlite
def test_what_nobody_expected_is_one_line_that_names_its_log(stopped: Directory, tmp_path: Path) -> None:
    stopped.data.ledger.write_bytes(b"no database" * 1_000)
    said = stopped.run("log", TMPDIR=str(tmp_path))
    assert said.status == 1
    assert len(said.err.splitlines()) == 1
    assert "Traceback" not in said.err


# --- who reads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("log",), ("log", "--follow")], ids=" ".join)
@pytest.mark.parametrize("reader", ["head -1", "false", "true"])
def test_a_reader_that_goes_away_ends_the_command_quietly(
    stopped: Directory, arguments: tuple[str, ...], reader: str
) -> None:
    command = " ".join(f"'{part}'" for part in stopped.command(*arguments))
    done = subprocess.run(
        ["bash", "-c", f"{command} | {reader}; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=30,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("0", "141")


def test_nobody_at_all_to_read_is_no_traceback(stopped: Directory) -> None:
    command = " ".join(f"'{part}'" for part in stopped.command("log"))
    done = subprocess.run(
        ["bash", "-c", f"{command} >&-"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=30,
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_any_encoding_of_the_terminal_will_do(stopped: Directory, encoding: str) -> None:
    said = stopped.run("inbox", LC_ALL="C", PYTHONIOENCODING=encoding)
    assert (said.status, said.err) == (0, "")


def test_the_log_is_followed_over_a_start_of_the_system(stopped: Directory) -> None:
    """What was opened while nobody wrote must notice that somebody does."""
    after = stopped.run("log").lines[-1]["seq"]
    command = stopped.command("log", "--follow", "--after", str(after - 1))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["seq"] == after
        ledger = open_ledger(stopped.data)
        refused = open_session(ledger, "default", "later", SessionMode.EDIT, client="local", opened_by="test")
        assert refused is None
        give_places(ledger)
        assert json.loads(process.stdout.readline())["seq"] == after + 1
        ledger.close()
    finally:
        process.terminate()
        process.communicate(timeout=10)


@pytest.mark.parametrize(
    "words", [("log",), ("show", "nobody"), ("nonsense",), ("tools", "list", "--json")], ids=" ".join
)
def test_a_command_that_is_forked_says_what_one_that_is_started_says(
    stopped: Directory, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = stopped.run(*words)
    monkeypatch.delenv(SERVER, raising=False)
    assert stopped.run(*words) == forked
