"""The command line on a system that runs: what is asked is recorded, decided and executed for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from interlock.identifier import new_id
from tests.integration.cli.support import Directory
from tests.support.source import ROOT
from tests.support.wait import until

PROGRAM = '{"argv":["/bin/sh","-c","exit 7"]}'


def submit(running: Directory, session: str, tool: str, arguments: str, *more: str) -> Any:
    """Submit with --wait; the JSON that was said, and the exit code beside it."""
    said = running.run(
        "submit", tool, "--args", arguments, "--session", session, "--wait", "20", "--json", *more
    )
    return {**said.json, "exit": said.status, "err": said.err}


def park(running: Directory, session: str, stage: str = "g") -> str:
    """A parked invocation."""
    command = ("submit", "shell.run", "--args", PROGRAM, "--session", session, "--stage", stage, "--json")
    said = running.run(*command)
    assert said.status == 3, said
    return str(said.json["invocation_id"])


def record(running: Directory, invocation_id: str) -> Any:
    return running.run("show", invocation_id, "--json").json["record"]


def ended(running: Directory, invocation_id: str) -> Any:
    """The record once it is final."""
    return until(
        lambda: (found := record(running, invocation_id))["phase"] == "done" and found,
        seconds=20,
        what=f"{invocation_id} is final",
    )


# --- submit --------------------------------------------------------------------------------------


def test_submits_waits_and_shows_the_outcome(running: Directory) -> None:
    said = submit(running, "one", "echo", '{"value":{"a":[1,2]}}')
    assert (said["exit"], said["status"], said["output"]) == (0, "COMPLETED", {"value": {"a": [1, 2]}})
    assert said["record"]["client"] == "local"
    assert said["record"]["subject"] == "agent"


def test_every_end_has_its_exit_code(running: Directory) -> None:
    assert running.run("sessions", "open", "codes", "--mode", "operate").status == 0
    assert submit(running, "codes", "shell.run", PROGRAM)["exit"] == 0
    assert submit(running, "codes", "shell.run", PROGRAM, "--check", "--repeat", "1")["exit"] == 5
    assert submit(running, "codes", "fs.read", '{"path":"nothing"}')["exit"] == 5
    assert submit(running, "codes", "echo", '{"valu":1}')["exit"] == 4
    assert submit(running, "codes", "nothing", "{}")["exit"] == 4
    assert (
        submit(running, "codes", "shell.run", PROGRAM, "--mode", "edit", "--stage", "h", "--wait", "0")[
            "exit"
        ]
        == 3
    )


def test_bad_arguments_get_the_verdict_of_governance(running: Directory) -> None:
    for text, code in (
        ('{"value":NaN}', "JSON_NOT_FINITE"),
        ('{"value":1e400}', "JSON_NUMBER_RANGE"),
        ('{"value":"a\\u0000b"}', "JSON_NUL"),
        ('{"value":1,"value":2}', "JSON_DUPLICATE_KEY"),
        ("[1]", "ARGUMENTS_NOT_OBJECT"),
    ):
        said = submit(running, "bad", "echo", text)
        assert (said["exit"], said["status"], said["code"]) == (4, "REJECTED", code)


def test_arguments_come_from_standard_input(running: Directory) -> None:
    command = ("submit", "echo", "--args", "-", "--session", "stdin", "--wait", "20", "--json")
    said = running.run(*command, stdin='{"value":"ż"}'.encode())
    assert (said.status, said.json["output"]) == (0, {"value": "ż"})
    assert running.run(*command, stdin=b'{"value":"\xff"}').err.startswith("USAGE: --args is not UTF-8")


def test_the_same_id_and_the_same_key_give_the_first_answer(running: Directory) -> None:
    named = ("--id", new_id())
    first = submit(running, "again", "echo", '{"value":1}', *named)
    again = submit(running, "again", "echo", '{"value":1}', *named)
    other = submit(running, "again", "echo", '{"value":2}', *named)
    assert [one["exit"] for one in (first, again, other)] == [0, 0, 4]
    assert (again["answer"], other["code"], other["record"]) == ("duplicate", "ID_CONFLICT", None)
    keyed = [submit(running, "again", "echo", '{"value":1}', "--key", "k") for _ in range(2)]
    assert keyed[0]["invocation_id"] == keyed[1]["invocation_id"]


def test_a_batch_says_one_line_each(running: Directory, tmp_path: Path) -> None:
    file = tmp_path / "batch.jsonl"
    lines = [json.dumps({"tool": "echo", "arguments": {"value": n}}) for n in range(20)]
    file.write_text("\n".join([*lines, '{"tool":"echo","arguments":{"value":NaN}}', "no json"]))
    said = running.run("submit", "--batch", str(file), "--session", "batch", "--wait", "20", "--json")
    statuses = [line["status"] for line in said.lines]
    assert statuses == ["COMPLETED"] * 20 + ["REJECTED", None]
    assert said.status == 4


# --- answers -------------------------------------------------------------------------------------


def test_an_approval_lets_it_run(running: Directory) -> None:
    invocation_id = park(running, "approved")
    [request] = [
        r for r in running.run("inbox", "--json").json["requests"] if r["invocation_id"] == invocation_id
    ]
    program, *arguments = request["approve"].split()
    assert program == "interlock"
    assert running.run(*arguments).status == 0
    found = ended(running, invocation_id)
    assert (found["status"], found["granted_by"], found["approvers"], found["exit_code"]) == (
        "COMPLETED", "quorum", ["operator"], 7,
    )  # fmt: skip
    assert running.run("approve", invocation_id).status == 0


def test_a_denial_is_final_and_says_why(running: Directory) -> None:
    invocation_id = park(running, "denied")
    assert running.run("deny", invocation_id, "--reason", "not today").status == 0
    found = ended(running, invocation_id)
    assert (found["status"], found["reason_code"], found["reason"]) == (
        "REJECTED",
        "APPROVAL_DENIED",
        "not today",
    )


def test_who_asks_or_is_acted_for_cannot_approve(running: Directory) -> None:
    command = (
        "submit",
        "shell.run",
        "--args",
        PROGRAM,
        "--session",
        "own",
        "--subject",
        "operator",
        "--json",
    )
    invocation_id = running.run(*command).json["invocation_id"]
    said = running.run("approve", invocation_id, "--json")
    assert (said.status, said.json["answers"][0]["code"]) == (1, "APPROVER_IS_REQUESTER")
    assert said.err.startswith("APPROVER_IS_REQUESTER: ")
    assert record(running, invocation_id)["phase"] == "awaiting_approval"


def test_an_answer_to_other_terms_does_not_count(running: Directory) -> None:
    invocation_id = park(running, "terms")
    said = running.run("approve", invocation_id, "--terms", "0" * 16, "--json")
    assert (said.status, said.json["answers"][0]["code"]) == (1, "VOTE_DIGEST_MISMATCH")


def test_a_stranger_cannot_approve(running: Directory) -> None:
    invocation_id = park(running, "stranger")
    said = running.run("approve", invocation_id, "--as", "nobody", "--json")
    assert said.json["answers"][0]["code"] == "APPROVER_UNKNOWN"


def test_a_cancellation_ends_what_waits(running: Directory) -> None:
    invocation_id = park(running, "cancelled")
    said = running.run("cancel", invocation_id, "--json")
    assert (said.status, said.json["cancelled"][0]["phase"]) == (0, "done")
    assert record(running, invocation_id)["reason_code"] == "CANCELLED"
    assert running.run("cancel", invocation_id, "--json").json["cancelled"][0]["already_final"]
    assert running.run("cancel", new_id()).err.startswith("NOT_FOUND: ")


# --- sessions and tools --------------------------------------------------------------------------


def test_a_session_is_opened_once_and_closed(running: Directory) -> None:
    assert running.run("sessions", "open", "life", "--mode", "edit").status == 0
    assert running.run("sessions", "open", "life", "--mode", "edit").err.startswith("SESSION_EXISTS: ")
    assert submit(running, "life", "echo", '{"value":1}')["exit"] == 0
    assert running.run("sessions", "close", "life").status == 0
    shown = running.run("sessions", "show", "life", "--json").json
    assert (shown["mode"], shown["closed"], shown["statuses"]) == ("edit", True, {"COMPLETED": 1})
    assert submit(running, "life", "echo", '{"value":2}')["code"] == "SESSION_CLOSED"


def test_contracts_are_added_from_a_file_and_answered_by_the_mock(running: Directory, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    schema = {"type": "object", "properties": {"ticket_id": {"type": "integer", "minimum": 1}}}
    contract = {"name": "note", "tier": "T0", "parameters": schema, "effects": {"idempotent": True}}
    file.write_text(json.dumps([contract]))
    assert (
        running.run("tools", "check", str(file)).status == 2
    )  # it has no --data: a check needs no directory
    added = running.run("tools", "add", str(file), "--catalogue", "tickets", "--json")
    assert (added.status, added.json["added"]) == (0, ["tickets/note"])
    assert added.json["tiers"] == {"tickets/note": "T0"}
    assert running.run("tools", "add", str(file), "--catalogue", "tickets", "--json").json["added"] == []
    said = submit(running, "mock", "tickets/note", '{"ticket_id":60.0}')
    assert (said["exit"], said["status"]) == (0, "COMPLETED")
    assert running.run("tools", "show", "tickets/note", "--json").json["contract"]["executor"] == "mock"
    assert "did you mean tickets/note?" in running.run("submit", "note", "--args", "{}").err
    file.write_text(json.dumps([{**contract, "version": "2"}]))
    replaced = running.run("tools", "add", str(file), "--catalogue", "tickets", "--replace")
    assert replaced.out == "replaced tickets/note  T0\n"
    file.write_text("[]")
    assert "nothing was in it" in running.run("tools", "add", str(file), "--catalogue", "tickets").out


@pytest.mark.parametrize(
    ("contract", "code"),
    [
        ({"name": "x", "tier": "T0", "capabilities": ["SHELL_EXEC"]}, "TIER_BELOW_FLOOR"),
        (
            {
                "name": "x",
                "tier": "T0",
                "parameters": {"type": "object", "properties": {"a": {"$ref": "http://h/s"}}},
            },
            "SCHEMA_REMOTE_REF",
        ),
        ({"name": "x y"}, "CATALOGUE_INVALID"),
        ({"name": "x", "tier": "T0", "surprise": 1}, "CATALOGUE_INVALID"),
        ({"name": "x"}, "CATALOGUE_INVALID"),
    ],
)
def test_a_bad_contract_is_refused_by_name(
    running: Directory, tmp_path: Path, contract: dict[str, Any], code: str
) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([contract]))
    said = running.run("tools", "add", str(file), "--catalogue", "bad", "--json")
    assert (said.status, said.json["added"], said.json["refused"][0]["code"]) == (1, [], code)


# --- audits --------------------------------------------------------------------------------------


def test_the_running_system_proves_itself(running: Directory) -> None:
    submit(running, "audit", "echo", '{"value":1}')
    verified = running.run("verify", "--json")
    assert (verified.status, verified.json["ok"], verified.json["faults"]) == (0, True, [])
    rebuilt = running.run("rebuild", "--json")
    assert (rebuilt.status, rebuilt.json["equal"]) == (0, True)
    replayed = until(
        lambda: (said := running.run("replay", "audit", "--json").json)["projected_seq"] and said,
        seconds=30,
        what="the session is projected",
    )
    assert (replayed["equal"], replayed["executions"]) == (True, 0)
    assert replayed["answers"][0]["result"]["output"] == {"value": 1}


def test_doctor_finds_a_running_system_fit(running: Directory) -> None:
    said = running.run("doctor", "--json")
    states = {check["name"]: check["state"] for check in said.json["checks"]}
    assert states["running"] == states["broker"] == states["claimers"] == states["ledger"] == "ok"


def test_the_log_follows_what_comes(running: Directory) -> None:
    head = running.run("verify", "--json").json["seq"]
    command = running.command("log", "--follow", "--after", str(head), "--session", "followed")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True)
    try:
        submit(running, "followed", "echo", '{"value":1}')
        assert process.stdout is not None
        types = {json.loads(process.stdout.readline())["type"] for _ in range(3)}
        assert types == {"SessionOpened", "ToolInvocationRequested", "ApprovalGranted"}
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_a_second_start_is_refused(running: Directory) -> None:
    said = running.run("up")
    assert said.status == 1
    assert said.err.startswith("ALREADY_RUNNING: ")


def test_a_wait_ends_soon_after_the_outcome(running: Directory) -> None:
    began = time.monotonic()
    assert submit(running, "quick", "echo", '{"value":1}')["exit"] == 0
    assert time.monotonic() - began < 5


# --- as root -------------------------------------------------------------------------------------


@pytest.mark.root
def test_no_file_of_roots_appears_among_the_data(reachable_tmp_path: Path) -> None:
    from tests.integration.cli.support import running_on

    directory = Directory(reachable_tmp_path / "data")
    with running_on(directory):
        owner = directory.path.stat().st_uid
        assert owner != os.geteuid()
        file = reachable_tmp_path / "tools.json"
        file.write_text("[]")
        file.chmod(0o600)
        for command in (
            ("sessions", "open", "r", "--mode", "edit"),
            ("tools", "add", str(file), "--catalogue", "c"),
            ("submit", "echo", "--args", '{"value":1}', "--wait", "20"),
            ("verify",),
            ("rebuild",),
            ("inbox",),
        ):
            assert directory.run(*command).status == 0, command
        assert {path.stat().st_uid for path in directory.path.rglob("*")} == {owner}
    assert sys.executable
