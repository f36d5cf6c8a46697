"""A pool process as the tests of the sandbox use it: calls in, outcomes out, never as root."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.process import is_zombie
from tests.support.source import ROOT
from workers.supervisor.port import Call, Completed, Failed, Outcome
from workers.supervisor.report import decode_outcome, encode_call

UNPRIVILEGED_ID = 23917
CANARY = "the-canary-that-nobody-inside-may-see"
ALL = ("FILE_READ", "FILE_WRITE", "SHELL_EXEC", "PROCESS_SPAWN", "NETWORK_ACCESS")
_DRIVER = Path(__file__).with_name("driver.py")


class Pool:
    """One pool process with its spawner. `folder` is a folder that every account can enter."""

    def __init__(
        self, folder: Path, egress: list[tuple[str, int, list[str]]] | None = None, as_root: bool = False
    ) -> None:
        self.folder = folder
        self.lock = folder / "boot.lock"
        self.orphans = self._make("orphans")
        self.canary = folder / "canary"
        self.canary.write_text(CANARY)
        self.canary.chmod(0o644)
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._has_ended = False
        given: dict[str, Any] = {
            "lock": str(self._make("locks") / "boot.lock"),
            "canary": str(self.canary),
            "orphans": str(self.orphans),
            "egress": egress or [],
        }
        self.lock = Path(given["lock"])
        who: dict[str, Any] = {}
        if os.geteuid() == 0 and not as_root:
            who = {"user": UNPRIVILEGED_ID, "group": UNPRIVILEGED_ID, "extra_groups": []}
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(_DRIVER), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SECRET": CANARY, "LD_PRELOAD": ""},
            cwd="/",
            **who,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        ready = self._wait(0)
        self.spawner_pid: int = ready["spawner_pid"]
        self.layers: list[str] | None = ready["layers"]
        self.refusal: list[str] | None = ready["refusal"]

    def workspace(self, name: str = "session") -> Path:
        """The folder of one session, made when it is first asked for; owned by the pool's account."""
        return self._make(f"workspace-{name}")

    def begin(self, tool: str, arguments: dict[str, Any], **changes: Any) -> int:
        """Begins a call; gives the number to wait for."""
        number: int = changes.pop("number", None) or next(self._numbers)
        session = changes.get("session_id", "session")
        fields: dict[str, Any] = {
            "invocation_id": f"invocation-{number}",
            "tool": tool,
            "arguments": arguments,
            "session_id": session,
            "workspace": self.workspace(session),
            "capabilities": frozenset(ALL),
            "wall_limit_ms": 20_000,
            "output_limit_bytes": 1_048_576,
            "start_by_boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10_000_000_000,
            "claim": f"claim-{number}",
        }
        claim_holds = changes.pop("claim_holds", True)
        call = Call(**{**fields, **changes})
        self._say({"id": number, "call": encode_call(call), "claim_holds": claim_holds})
        return number

    def stop(self, number: int, reason: str) -> None:
        """Makes `should_stop` of that call answer with `reason`."""
        self._say({"id": number, "stop": reason})

    def outcome(self, number: int) -> Outcome:
        """Waits for the outcome of a call."""
        return decode_outcome(self._wait(number)["outcome"])

    def execute(self, tool: str, arguments: dict[str, Any], **changes: Any) -> Outcome:
        """Carries out one call."""
        return self.outcome(self.begin(tool, arguments, **changes))

    def completed(self, tool: str, arguments: dict[str, Any], **changes: Any) -> Completed:
        """The outcome of a call that has to complete."""
        outcome = self.execute(tool, arguments, **changes)
        assert isinstance(outcome, Completed), outcome
        return outcome

    def failed(self, tool: str, arguments: dict[str, Any], **changes: Any) -> Failed:
        """The outcome of a call that has to fail."""
        outcome = self.execute(tool, arguments, **changes)
        assert isinstance(outcome, Failed), outcome
        return outcome

    def shell(self, script: str, **changes: Any) -> dict[str, Any]:
        """The output of a shell script inside; proof that the sandbox ran is that it completed."""
        return self.completed("shell.run", {"argv": ["sh", "-c", script]}, **changes).output

    def python(self, program: str, **changes: Any) -> str:
        """What a Python program prints inside; it has to exit 0."""
        output = self.completed("shell.run", {"argv": ["python3", "-c", program]}, **changes).output
        assert output["exit_code"] == 0, output["stderr"]
        return str(output["stdout"]["text"])

    def close(self) -> None:
        """Ends the pool as an operator would: no more input."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self._reader.join(10)
        self.process.stdout.close()

    def _make(self, name: str) -> Path:
        path = self.folder / name
        if not path.exists():
            path.mkdir(mode=0o755)
            if os.geteuid() == 0:
                shutil.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        return path

    def _say(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            with self._arrived:
                self._answers[answer["id"]] = answer
                self._arrived.notify_all()
        with self._arrived:
            self._has_ended = True
            self._arrived.notify_all()

    def _wait(self, number: int) -> dict[str, Any]:
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._answers or self._has_ended, timeout=100)
            assert number in self._answers, f"no answer to {number}; exit code {self.process.poll()}"
            return self._answers[number]


def children_of(pid: int) -> list[int]:
    """The children of a process, ended ones left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and not is_zombie(folder):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def processes_that_say(marker: str) -> list[int]:
    """The living processes whose command line holds `marker`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes() and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
