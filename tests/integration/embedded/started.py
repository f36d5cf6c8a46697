"""One started small system, seen from outside: its processes, its answers, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.embedded import kernel
from gateway.embedded.control import ask
from gateway.embedded.directory import DataDirectory
from gateway.embedded.ready import read_ready
from tests.support.wait import until

PROGRAM = Path(__file__).with_name("small_system.py")
ROOT = Path(__file__).parents[3]


class System:
    """One started program, seen from outside."""

    def __init__(self, folder: Path, variations: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.directory = DataDirectory.at(folder)
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), *variations],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> System:
        def is_ready_or_ended() -> object:
            return self.process.poll() is not None or read_ready(self.directory)

        until(is_ready_or_ended, 20, "the system is ready")
        assert self.process.poll() is None, self.process.communicate()
        return self

    def wait_end(self, seconds: float = 20) -> tuple[int, str, str]:
        """(exit status, standard output, standard error)"""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err

    def status(self) -> dict[str, dict[str, object]]:
        """The roles by name."""
        roles = ask(self.directory, {"do": "status"})["roles"]
        assert isinstance(roles, list)
        return {role["name"]: role for role in roles}

    def role_pid(self, name: str) -> int:
        pid = self.status()[name]["pid"]
        assert isinstance(pid, int)
        return pid

    def parent_pid(self) -> int:
        pid = ask(self.directory, {"do": "status"})["parent_pid"]
        assert isinstance(pid, int)
        return pid

    def everybody(self) -> set[kernel.ProcessIdentity]:
        """Every process of the system, told apart from later ones of the same number."""
        pids = {self.pid, *kernel.descendants(self.pid)}
        return {identity for identity in map(kernel.identify, pids) if identity is not None}

    def short_folder(self) -> Path:
        """Where the system keeps its sockets when the path is long; the account is its own."""
        owner = self.directory.path.stat().st_uid
        return self.directory.short_folder.with_name(
            self.directory.short_folder.name.replace(f"-{os.getuid()}-", f"-{owner}-")
        )

    def end(self) -> None:
        if self.process.poll() is None:
            everybody = self.everybody()
            self.process.kill()
            with contextlib.suppress(AssertionError):
                until(lambda: not any(map(kernel.is_alive, everybody)), 30, "everybody is gone")
            for left in filter(kernel.is_alive, everybody):
                os.kill(left.pid, signal.SIGKILL)
        self.process.wait(30)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


StartSystem = Callable[..., System]
