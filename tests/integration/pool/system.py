"""A small system around pools: a real broker, a real ledger, real keys; governance is the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gateway.embedded.directory import DataDirectory, prepare
from gateway.embedded.ledger_note import note_server
from gateway.store import open_ledger
from governance.catalogue import builtin_tools
from governance.keys import KeyPurpose, make_keys, read_key
from interlock.adapters.celery_hints import CeleryHintPublisher
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.hint import Hint
from tests.support.permitted import Asked, grant, phase_of, put_contracts
from tests.support.store import store_settings
from tests.support.valkey import ValkeyServer
from tests.support.wait import until

ROOT = Path(__file__).resolve().parents[3]
OPEN = frozenset(("queued", "running"))


class PoolSystem:
    """Everything a pool needs but the pool. Close it."""

    def __init__(self, folder: Path) -> None:
        self._stores = ExitStack()
        self.directory = DataDirectory.at(folder, self._stores.enter_context(store_settings()))
        prepare(self.directory)
        make_keys(self.directory.keys, lambda private: Ed25519Signer.from_bytes(private).public_hex)
        self.broker = ValkeyServer(folder)
        self.broker.start()
        self.ledger = open_ledger(self.directory, create=True)
        # From here on the directory alone says where its ledger is.
        note_server(self.directory, self.ledger.info.incarnation)
        self.tools = {tool.name: tool for tool in builtin_tools()}
        put_contracts(self.ledger, list(self.tools.values()))
        self.signer = Ed25519Signer.from_bytes(read_key(self.directory.keys, KeyPurpose.GOVERNANCE))
        self.publisher = CeleryHintPublisher(self.directory.broker_url)
        self.pools: list[subprocess.Popen[str]] = []

    def start_pool(self, name: str, **environment: str) -> subprocess.Popen[str]:
        """A pool process that says it is ready."""
        module = "tests.integration.pool.serving"
        arguments = [str(self.directory.path), name]
        process = self._start([sys.executable, "-m", module, *arguments], environment)
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        return process

    def start_celery(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Celery's own command line, and nothing else."""
        command = [sys.executable, "-m", "celery", "-A", "gateway.celery_app", "worker", *arguments]
        return self._start(command, {"INTERLOCK_DATA": str(self.directory.path), **environment})

    def _start(self, command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pools.append(process)
        return process

    def ask(self, tool: str, arguments: Mapping[str, Any], *, stage: str = "default") -> str:
        """An invocation that is granted."""
        [identifier] = grant(self.ledger, self.signer, [Asked(self.tools[tool], arguments, stage=stage)])
        return identifier

    def publish(self, pool: str, *identifiers: str) -> None:
        """One hint."""
        self.publisher.publish([Hint(pool, identifiers)])

    def outcome(self, identifier: str, seconds: float = 60) -> str:
        """The phase that an invocation comes to rest in."""

        def at_rest() -> str | None:
            phase = phase_of(self.ledger, identifier)
            return None if phase in OPEN else phase

        found = until(at_rest, seconds, f"{identifier} is at rest")
        assert found is not None
        return found

    def end(self, process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
        """Ask a pool to end, and its exit status."""
        process.send_signal(number)
        status = process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
        self.pools.remove(process)
        return status

    def close(self) -> None:
        for process in list(self.pools):
            self.end(process, signal.SIGKILL)
        self.publisher.close()
        self.ledger.close()
        self._stores.close()
        self.broker.close()
