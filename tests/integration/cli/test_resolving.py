"""A call of unknown outcome: what waits behind it says so, a person resolves it, and the stage goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from gateway.reading import open_for_writing
from governance.ledger import Append, Due, Ledger, head_with
from interlock.decision import Reason
from interlock.event import ReconciliationRequired, invocation_stream, new_event
from tests.integration.cli.support import Directory
from tests.support.source import ROOT
from tests.support.wait import until

SLOW = json.dumps({"argv": ["sleep", "20"]})


def make_unknown(ledger: Ledger, invocation_id: str) -> None:
    """What the sweep does to a claim whose process it takes for dead."""
    stream = invocation_stream(invocation_id)
    with ledger.write() as transaction:
        head = transaction.heads([stream])[stream]
        lost = Reason(code="LEASE_LOST", sentence="the worker that claimed it is gone")
        event = new_event(
            ReconciliationRequired(nonce=head.nonce, reason=lost),
            cause=f"timer:lease:{head.boot}",
            actor="test",
        )
        after = head_with(head, phase="reconciliation_required", nonce="", boot="", ready=False)
        due = Due(*stream, "reconcile", transaction.now_us + 3_600_000_000)
        assert not transaction.append(
            [Append(stream, head.version, [event], after, due, head.tenant, head.session)]
        )


def phase(running: Directory, invocation_id: str) -> str:
    return str(running.run("show", invocation_id, "--json").json["record"]["phase"])


def test_an_unknown_outcome_is_seen_resolved_and_frees_its_stage(running: Directory) -> None:
    running.run("sessions", "open", "unknown", "--mode", "edit")
    first = running.run("submit", "shell.run", "--session", "unknown", "--args", SLOW, "--json").json
    identifier = first["invocation_id"]
    assert "waits for an approval" in first["waits_for"]
    assert running.run("approve", identifier).status == 0
    until(lambda: phase(running, identifier) == "running", 20, "it runs")
    with open_for_writing(running.data) as ledger:
        make_unknown(ledger, identifier)

    write = ("submit", "fs.write", "--session", "unknown", "--args", '{"path": "a.txt", "content": "x"}')
    behind = running.run(*write, "--wait", "0.3", INTERLOCK_COMMAND="./run")
    told = f"waits behind {identifier}, which is reconciliation_required; `./run reconcile show {identifier}`"
    assert told in behind.err
    assert told in running.run("state", "unknown", INTERLOCK_COMMAND="./run").out
    cancelled = running.run("cancel", identifier)
    assert "reconcile show" in cancelled.out

    listed = running.run("reconcile", "list", "--json").json["unresolved"]
    assert [one["invocation_id"] for one in listed] == [identifier]
    [waiting] = listed[0]["behind"]
    shown = running.run("reconcile", "show", identifier, INTERLOCK_COMMAND="./run")
    assert f"./run reconcile resolve {identifier}" in shown.out

    resolve = ("reconcile", "resolve", identifier, "--reason", "asked", "--verdict")
    refused = running.run(*resolve, "not_executed")
    assert (refused.status, refused.err.split(":")[0]) == (1, "CLAIM_MAY_LIVE")
    done = running.run(*resolve, "executed", "--json")
    assert done.json["released"] == [waiting]
    until(lambda: phase(running, waiting) == "done", 20, "the next of the stage is done")
    assert running.run(*resolve, "not_executed").err.startswith("NOT_UNRESOLVED")
    assert running.run("verify").status == 0


def test_the_example_bot_answers_what_is_parked(running: Directory) -> None:
    pair = running_key(running)
    added = ("--role", "bot", "--person", "alice", "--public-key", pair["public"], "--tiers", "T3")
    assert running.run("principals", "add", "test-bot", *added, "--tools", "shell.run").status == 0
    assert running.run("principals", "add", "test-bot", *added, "--tools", "shell.run").err.startswith(
        "PRINCIPAL_EXISTS"
    )
    names = [one["name"] for one in running.run("principals", "list", "--json").json["principals"]]
    assert "test-bot" in names
    running.run("sessions", "open", "bot", "--mode", "edit")
    ids = [
        running.run(
            "submit",
            "shell.run",
            "--session",
            "bot",
            "--stage",
            argv[0],
            "--args",
            json.dumps({"argv": argv}),
            "--json",
        ).json["invocation_id"]
        for argv in (["ls", "."], ["rm", "x"])
    ]
    done = subprocess.run(
        [sys.executable, "examples/approval_bot.py", "--once", "--data", str(running.path)],
        cwd=ROOT,
        env={**os.environ, "INTERLOCK_BOT_KEY": pair["private"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    until(lambda: [phase(running, one) for one in ids] == ["done", "done"], 20, "both are answered")
    statuses = [running.run("show", one, "--json").json["record"]["status"] for one in ids]
    assert statuses == ["COMPLETED", "REJECTED"]


def running_key(running: Directory) -> dict[str, str]:
    said = subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", "principals", "new-key", "--json"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    pair: dict[str, str] = json.loads(said.stdout)
    assert pair["private"] not in "".join(
        path.read_text("utf-8", "replace") for path in running.path.glob("*.json*")
    )
    return pair


def test_a_bot_needs_a_key_and_rights(running: Directory) -> None:
    said = ("principals", "add", "other", "--role", "bot", "--person", "alice")
    assert running.run(*said).status == 2
    assert running.run(*said, "--public-key", "zz").status == 2
    assert running.run(*said, "--public-key", "0" * 64, "--tiers", "T9", "--tools", "*").status == 2
