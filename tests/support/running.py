"""A whole embedded system of the test's own: started, looked at, hurt from outside, ended without a trace.

It is the real `up` with short times, looked at through its files, its broker and its control socket.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gateway.embedded.control import ask
from gateway.embedded.directory import DataDirectory
from interlock.errors import NotRunningError
from tests.support.process import is_zombie
from tests.support.store import LEDGER_URL, store_settings
from tests.support.wait import until

REPO = Path(__file__).resolve().parents[2]
UP = ("-m", "gateway.cli.main", "up", "--data")
READY_SECONDS = 20.0
GONE_SECONDS = 3.0

QUICK: Mapping[str, str] = {
    "INTERLOCK_LEASE_MS": "2000",
    "INTERLOCK_BEAT_MS": "300",
    "INTERLOCK_RELEASE_AGAIN_MS": "400",
    "INTERLOCK_LOOK_AGAIN_MS": "1500",
    "INTERLOCK_POLL_MS": "200",
    "INTERLOCK_ATTEMPT_WAIT_MS": "100",
}
"""Times in which a test can wait for every net below the fast road."""


class Firing(NamedTuple):
    """One fault that fired."""

    point: str
    nth: int
    action: str
    pid: int


@dataclass
class RunningSystem:
    """One data directory and, between `start` and an end, the processes that run on it."""

    directory: DataDirectory
    environment: dict[str, str]
    program: Sequence[str] = UP
    process: subprocess.Popen[bytes] | None = None
    faulted: set[int] = field(default_factory=set)
    """Processes that the test ended or stopped itself."""
    _known: dict[int, str] = field(default_factory=dict)
    """Process → when it started, by which it is told from a later one of the same number."""

    # --- life ----------------------------------------------------------------------------------------

    def start(self, *, wait: bool = True, faults: bool = True) -> None:
        """Start `up`; without `faults` none of the planned ones is injected."""
        self.directory.ready_file.unlink(missing_ok=True)
        with open(self.directory.path.with_name("up.log"), "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, str(self.directory.path)],
                env=self.environment if faults else {**self.environment, "INTERLOCK_FAULT": ""},
                cwd=REPO,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Until it says that it is ready; what it said instead is in the failure."""

        def is_ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"up ended with {self.process.returncode}:\n{self.said()}")
            return self.directory.ready_file.exists()

        try:
            until(is_ready, READY_SECONDS, "the system is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def stop(self) -> int:
        """Stop in order; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(40)
        self.process = None
        return status

    def kill(self) -> None:
        """End the foreground process at once, as nothing could prevent it."""
        assert self.process is not None
        self.faulted |= {self.process.pid, *self.pids()}
        self.process.kill()
        self.process.wait()
        self.process = None

    def end(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        with contextlib.suppress(OSError):
            for pid in self.pids():
                os.kill(pid, signal.SIGCONT)
        if self.process is not None:
            # Not in order: nobody waits for what it would finish.
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(AssertionError):
            until(lambda: not self.pids(), GONE_SECONDS, "everything below it is gone")
        for pid in self.pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    # --- looking -------------------------------------------------------------------------------------

    def said(self) -> str:
        """The ends of all logs."""
        logs = [self.directory.path.with_name("up.log"), *sorted(self.directory.logs.glob("*.log"))]
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs if log.exists()
        )

    def roles(self) -> dict[str, int]:
        """Role → process, of those that run; empty while nobody answers."""
        return {role["name"]: role["pid"] for role in self._roles() if role["pid"]}

    def all_ready(self) -> bool:
        """Whether every role runs and serves."""
        found = self._roles()
        return bool(found) and all(role["ready"] for role in found)

    def _roles(self) -> list[dict[str, Any]]:
        try:
            said: Any = ask(self.directory, {"do": "status"})
        except NotRunningError:
            return []
        return list(said["roles"])

    def pids(self) -> set[int]:
        """Every living process that this system ever showed below its foreground process, and that one."""
        if self.process is not None and self.process.poll() is None:
            for pid in {self.process.pid, *self.descendants(self.process.pid)}:
                self._known.setdefault(pid, started_at(pid))
        self._known = {pid: at for pid, at in self._known.items() if at and started_at(pid) == at}
        return set(self._known)

    def children(self, pid: int) -> list[int]:
        """The processes right below one."""
        try:
            listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except OSError:
            return []
        return [int(child) for child in listed.split()]

    def descendants(self, pid: int) -> set[int]:
        """All processes below one."""
        below: set[int] = set()
        todo = [pid]
        while todo:
            for child in self.children(todo.pop()):
                if child not in below:
                    below.add(child)
                    todo.append(child)
        return below

    # --- hurting -------------------------------------------------------------------------------------

    def kill_role(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to a role's process; which process it was."""
        until(lambda: name in self.roles(), 30, f"{name} runs")
        pid = self.roles()[name]
        self.faulted.add(pid)
        os.kill(pid, number)
        return pid

    def wait_restarted(self, name: str, killed: int) -> None:
        """Until a role runs again, in another process."""
        until(lambda: self.roles().get(name, killed) != killed, 20, f"{name} is started again")

    # --- faults --------------------------------------------------------------------------------------

    @property
    def fault_log(self) -> Path:
        """Where every firing is noted; outside the data, writable for the system's account."""
        return self.directory.path.with_name("faults") / "log"

    def plan(self, faults: Sequence[str], times: int = 1) -> dict[str, str]:
        """The settings for a start in which these faults are injected."""
        return {
            "INTERLOCK_FAULT": ",".join(faults),
            "INTERLOCK_FAULT_LOG": str(self.fault_log),
            "INTERLOCK_FAULT_TIMES": str(times),
        }

    @property
    def _arming(self) -> Path:
        return self.fault_log.with_name("armed")

    def unarmed(self) -> dict[str, str]:
        """The setting by which planned faults wait for `arm`."""
        return {"INTERLOCK_FAULT_ARMED": str(self._arming)}

    def arm(self) -> None:
        """Let the planned faults fire from now on."""
        self._arming.touch()

    def disarm(self) -> None:
        """Let none fire any more."""
        self._arming.unlink(missing_ok=True)

    def firings(self) -> list[Firing]:
        """What fired so far."""
        if not self.fault_log.exists():
            return []
        fields = [line.split() for line in self.fault_log.read_text().splitlines()]
        return [Firing(point, int(nth), action, int(pid)) for point, nth, action, pid in fields]

    def faulted_pids(self) -> set[int]:
        """Every process that was ended or hindered on purpose."""
        return self.faulted | {firing.pid for firing in self.firings()}

    def heal(self) -> None:
        """End what an injected fault left hanging, which nobody else would."""
        living = self.pids()
        for firing in self.firings():
            if firing.action == "hang" and firing.pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(firing.pid, signal.SIGKILL)


def started_at(pid: int) -> str:
    """When a process started, in ticks since the host did; "" for none that lives."""
    folder = Path(f"/proc/{pid}")
    try:
        return "" if is_zombie(folder) else (folder / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


@contextmanager
def running_system(program: Sequence[str] = UP, **settings: str) -> Iterator[RunningSystem]:
    """A system on a folder of its own, not started; gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="c"))
    folder.chmod(0o755)
    faults = folder / "faults"
    faults.mkdir()
    faults.chmod(0o777)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_FAULT")},
        **QUICK,
        "INTERLOCK_TESTING": "1",
        "PYTHONPATH": str(REPO),
        **settings,
    }
    with store_settings("sqlite" if LEDGER_URL in settings else None) as store:
        system = RunningSystem(DataDirectory.at(folder / "d"), environment | store, program)
        try:
            yield system
        finally:
            system.end()
            shutil.rmtree(folder, ignore_errors=True)
