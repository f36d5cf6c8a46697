"""The scene: what the agent proposes, in which order, and what must become of each.

The agent speaks through the client alone; it neither reads the ledger nor touches the workspace.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.demo import bot
from gateway.demo.repository import MENDED, make_repository
from gateway.embedded.directory import DataDirectory
from gateway.parts import Parts
from gateway.proof import prove_log
from gateway.reading import LedgerOutcomes, Reading, open_reading
from gateway.refold import refold
from governance.ledger import Ledger
from governance.principal import register
from governance.session import open_session
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.canonical import Json, JsonObject
from interlock.client import Client
from interlock.event import PrincipalRegistered, StoredEvent
from interlock.state import ToolInvocationRecord
from interlock.tier import SessionMode, Tier

TENANT, CLIENT, SUBJECT = "default", "local", "agent"
WAIT_SECONDS = 30.0
RUN_TESTS: Mapping[str, Json] = {"argv": ["python3", "-m", "unittest", "-v"]}


@dataclass(frozen=True, slots=True)
class Act:
    """One proposal of the agent, and what must become of it."""

    title: str
    tool: str
    arguments: Mapping[str, Json]
    status: str
    reason_code: str | None = None
    exit_code: int | None = None
    stage: str = "work"
    mode: str | None = None
    cancelled: bool = False


ACTS = (
    Act("look around", "fs.list", {"path": "."}, "COMPLETED", exit_code=0),
    Act("read the module", "fs.read", {"path": "prices.py"}, "COMPLETED", exit_code=0),
    Act("run the tests: they fail", "shell.run", RUN_TESTS, "COMPLETED", exit_code=1),
    Act("write the fix", "fs.write", {"path": "prices.py", "content": MENDED}, "COMPLETED", exit_code=0),
    Act("run the tests again: they pass", "shell.run", RUN_TESTS, "COMPLETED", exit_code=0),
    Act(
        "delete the history: the bot says no",
        "shell.run",
        {"argv": ["rm", "-rf", ".git"]},
        "REJECTED",
        "APPROVAL_DENIED",
    ),
    Act("misspell an argument", "fs.read", {"file": "prices.py"}, "REJECTED", "SCHEMA_INVALID"),
    Act(
        "ask a person, then think better of it",
        "shell.run",
        {"argv": ["git", "status"]},
        "REJECTED",
        "CANCELLED",
        stage="people",
        cancelled=True,
    ),
    Act("ask for a higher mode", "shell.run", RUN_TESTS, "REJECTED", "MODE_ESCALATION", mode="operate"),
)


@dataclass(frozen=True, slots=True)
class Played:
    """One act with what became of it."""

    act: Act
    record: ToolInvocationRecord

    @property
    def is_good(self) -> bool:
        wanted = (self.act.status, self.act.reason_code, self.act.exit_code)
        return (self.record.status, self.record.reason_code, self.record.exit_code) == wanted


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything there is to tell."""

    played: tuple[Played, ...]
    events: tuple[StoredEvent, ...]
    digest: str
    """Of the session's state."""
    verified: bool
    events_verified: int
    equal: bool
    """Whether the state folded from zero has the projection's bytes."""
    faults: tuple[str, ...] = field(default=())

    @property
    def is_good(self) -> bool:
        return self.verified and self.equal and all(played.is_good for played in self.played)

    def to_json(self) -> JsonObject:
        """Counts, digests, and the verdicts."""
        statuses: dict[str, Any] = dict(Counter(played.record.status for played in self.played))
        receipts: list[Any] = [
            played.record.receipt_digest for played in self.played if played.record.receipt_digest
        ]
        return {
            "counts": {"invocations": len(self.played), "events": len(self.events), **statuses},
            "digests": {"state": self.digest, "receipts": receipts},
            "verify": {"ok": self.verified, "events": self.events_verified, "faults": list(self.faults)},
            "equal": self.equal,
            "as_expected": [played.is_good for played in self.played],
        }


def play(directory: DataDirectory, session: str) -> Outcome:
    """Let the agent and the bot work, and look at what became of it."""
    parts = Parts.of(directory, {})
    ledger = parts.ledger()
    try:
        make_repository(directory.workspaces / session)
        open_session(ledger, TENANT, session, SessionMode.EDIT, client=CLIENT, opened_by="operator")
        with _bot(directory, ledger, session), open_reading(directory) as reading:
            played = tuple(_perform(directory, reading, session))
            return _outcome(parts, reading, session, played)
    finally:
        ledger.close()


@contextmanager
def _bot(directory: DataDirectory, ledger: Ledger, session: str) -> Iterator[None]:
    """The bot in a process of its own; governance knows its public key, only it knows the private one."""
    signer = Ed25519Signer.generate()
    tiers = tuple(tier.value for tier in Tier if tier <= Tier.T3)
    payload = PrincipalRegistered(
        role="bot",
        person=bot.NAME,
        kid=signer.kid,
        public_key=signer.public_hex,
        tiers=tiers,
        tools=("shell.*",),
    )
    register(ledger, bot.NAME, payload, by="operator")
    command = [sys.executable, "-m", "gateway.demo.bot", str(directory.path), session]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(signer.private_bytes().hex().encode() + b"\n")
    process.stdin.flush()
    try:
        yield
    finally:
        # Its standard input ends, and so does the bot.
        process.stdin.close()
        process.wait()


def _perform(directory: DataDirectory, reading: Reading, session: str) -> Iterator[Played]:
    with Client(directory.broker_url, source=LedgerOutcomes(reading.ledger)) as client:
        for act in ACTS:
            submitted = client.submit(
                act.tool, act.arguments, session=session, stage=act.stage, subject=SUBJECT, mode=act.mode
            )
            if act.cancelled:
                client.cancel(submitted.invocation_id)
            yield Played(act, client.wait(submitted.invocation_id, WAIT_SECONDS))


def _outcome(parts: Parts, reading: Reading, session: str, played: tuple[Played, ...]) -> Outcome:
    refolded = refold(reading)
    report = prove_log(parts.directory)
    with reading.ledger.read() as view:
        events = tuple(view.session_events(session))
    _, state = reading.state(session)
    return Outcome(
        played=played,
        events=events,
        digest=state.digest,
        verified=report.ok,
        events_verified=report.events,
        equal=refolded.equal,
        faults=tuple(f"{fault.code}: {fault.detail}" for fault in report.faults),
    )
