"""A whole system for tests: `interlock up` on a folder of its own, and the faces that calls come in by."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gateway.embedded.apart import system_apart
from gateway.embedded.directory import DataDirectory
from gateway.store import open_ledger
from governance.docket import Docket, load_dockets
from governance.ledger import Ledger
from interlock.adapters.celery_wire import encode_task
from interlock.adapters.redis_client import connect
from interlock.errors import OursToFixError
from interlock.event import StoredEvent, evidence_stream, invocation_stream
from interlock.identifier import new_id
from tests.support.commanding import run_command
from tests.support.source import ROOT
from tests.support.store import store_settings
from tests.support.wait import until

REST = frozenset(("done", "awaiting_approval", "reconciliation_required"))


@dataclass(frozen=True)
class Verdict:
    """What became of one call, whichever face it came in by."""

    invocation_id: str | None
    recorded: bool
    phase: str
    code: str
    sentence: str
    pointer: str | None

    @property
    def is_refused(self) -> bool:
        return self.code != ""


@dataclass
class Live:
    """A running system and a look into its ledger."""

    directory: DataDirectory
    process: subprocess.Popen[bytes]
    ledger: Ledger

    def command(
        self, *arguments: str, stdin: bytes = b"", seconds: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one command of the product against this system."""
        return run_command([*arguments, "--data", str(self.directory.path)], stdin=stdin, seconds=seconds)

    def put(self, queue: str, item: bytes) -> None:
        """Push one raw item, as any producer could."""
        client = connect(self.directory.broker_client_url)
        client.lpush(queue, item)
        client.close()

    def answer(self, reply_to: str, seconds: float = 10) -> Mapping[str, Any]:
        """The governor's answer on a reply list."""
        client = connect(self.directory.broker_client_url, blocking=True)
        found = client.brpop([reply_to], timeout=seconds)
        client.close()
        assert found is not None, f"no answer on {reply_to}"
        value: dict[str, Any] = json.loads(found[1])
        return value

    def phase(self, invocation_id: str) -> str | None:
        """Where one invocation stands."""
        stream = invocation_stream(invocation_id)
        with self.ledger.read() as view:
            head = view.heads([stream]).get(stream)
        return None if head is None else head.phase

    def rest(self, invocation_id: str, seconds: float = 20) -> str:
        """Wait until one invocation moves no further by itself; its phase."""
        until(lambda: self.phase(invocation_id) in REST, seconds, f"{invocation_id} comes to rest")
        phase = self.phase(invocation_id)
        assert phase is not None
        return phase

    def docket(self, invocation_id: str) -> Docket:
        """One invocation read back."""
        with self.ledger.read() as view:
            return load_dockets(view, [invocation_id])[invocation_id]

    def events(self, invocation_id: str) -> list[StoredEvent]:
        """One invocation's events."""
        stream = invocation_stream(invocation_id)
        with self.ledger.read() as view:
            return view.events([stream]).get(stream, [])

    def evidence(self, invocation_id: str) -> list[StoredEvent]:
        """What stands beside it."""
        stream = evidence_stream(invocation_id)
        with self.ledger.read() as view:
            return view.events([stream]).get(stream, [])

    def receipt(self, invocation_id: str) -> Mapping[str, Any]:
        """The receipt of one that completed."""
        self.rest(invocation_id)
        body = self.events(invocation_id)[-1].body()
        receipt: dict[str, Any] = body["sealed"]["receipt"]
        return receipt

    def add_tools(self, catalogue: str, tools: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """Register contracts without code."""
        file = folder / f"{catalogue}.json"
        file.write_text(json.dumps(list(tools)))
        done = self.command("tools", "add", str(file), "--catalogue", catalogue, "--tier", "T0")
        assert done.returncode == 0, done.stderr.decode()

    def verdict(self, invocation_id: str | None, answer: Mapping[str, Any]) -> Verdict:
        """The verdict as the ledger has it, or as the answer says where it has none."""
        events = self.events(invocation_id) if invocation_id else []
        if not events:
            return Verdict(invocation_id, False, "", answer["code"], answer["sentence"], None)
        phase = self.phase(str(invocation_id)) or ""
        if events[-1].type != "ToolExecutionRejected":
            return Verdict(invocation_id, True, phase, "", "", None)
        reason = events[-1].body()["reason"]
        return Verdict(invocation_id, True, phase, reason["code"], reason["sentence"], reason["pointer"])


class Face(Protocol):
    """One way a call comes in."""

    def submit(self, live: Live, tool: str, raw_arguments: str, **fields: str) -> Verdict:
        """Propose a call whose arguments are this text, and return what became of it."""
        ...


class QueueFace:
    """A plain Celery message whose body is written by hand, so its text is exactly what was sent."""

    def submit(self, live: Live, tool: str, raw_arguments: str, **fields: str) -> Verdict:
        identifier = fields.pop("id", new_id())
        reply_to = f"interlock.reply.{new_id()}"
        said = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items())
        kwargs = (
            f'{{"id": {json.dumps(identifier)}, "tool": {json.dumps(tool)}, '
            f'"arguments": {raw_arguments}{", " + said if said else ""}}}'
        )
        item = encode_task(
            "interlock.propose",
            kwargs.encode(),
            queue="interlock.propose",
            task_id=identifier,
            reply_to=reply_to,
        )
        live.put("interlock.propose", item)
        answer = live.answer(reply_to)
        return live.verdict(answer["invocation_id"], answer)


class CliFace:
    """`interlock submit`."""

    def submit(self, live: Live, tool: str, raw_arguments: str, **fields: str) -> Verdict:
        options = [word for name, value in fields.items() for word in (f"--{name}", value)]
        identifier = fields.get("id") or new_id()
        if "id" not in fields:
            options += ["--id", identifier]
        done = live.command("submit", tool, "--args", "-", "--json", *options, stdin=raw_arguments.encode())
        if live.events(identifier):
            return live.verdict(identifier, {})
        line = (done.stderr or done.stdout).decode()
        if done.stdout:
            said = json.loads(done.stdout)
            return live.verdict(
                said.get("invocation_id"), {"code": said["code"], "sentence": said["sentence"]}
            )
        code, _, sentence = line.partition(": ")
        return Verdict(None, False, "", code, sentence, None)


FACES: Mapping[str, Face] = {"queue": QueueFace(), "cli": CliFace()}
"""Every face that exists; later ones are added here."""


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[Live]:
    """`interlock up` on a folder, until the block ends."""
    directory = DataDirectory.at(folder / "data")
    with (folder / "up.log").open("wb") as log:
        try:
            with (
                store_settings() as store,
                system_apart(
                    directory,
                    environment={**os.environ, **store, **environment},
                    folder=ROOT,
                    output=log,
                    errors=subprocess.STDOUT,
                ) as process,
                closing(open_ledger(directory, read_only=True)) as ledger,
            ):
                yield Live(directory, process, ledger)
        except OursToFixError as error:
            error.add_note((folder / "up.log").read_text())
            raise
