"""One pool over any ledger, without processes: real parts, and a supervisor that only answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from governance.catalogue import builtin_tools
from governance.contract_store import ContractStore
from governance.execution import Claimant, Execution
from governance.ledger import Ledger, LedgerInfo, LedgerTransaction, LedgerView
from governance.line import Line
from governance.sensitive import opened_arguments
from interlock.adapters.ed25519 import Ed25519KeyRing, Ed25519Signer
from interlock.canonical import JsonObject
from interlock.clock import ManualClock
from interlock.contract import Tool
from interlock.errors import CommitUnknownError, LedgerUnavailableError
from interlock.fault import FaultPoints, NoFaults
from interlock.hint import Hint
from interlock.memory_stream import ManualWaker
from interlock.receipt import SandboxReport
from interlock.seal import Purpose, SealVerifier
from interlock.settings import Settings
from workers.adapters.tenacity_insist import TenacityInsist
from workers.claim import Claiming, Drops
from workers.deliver import Delivery
from workers.recover import Recovery
from workers.report import Reporting, Schemas
from workers.run import BuiltinToolset, Running
from workers.serve import Serving
from workers.spool import Spool
from workers.supervisor.port import Call, Completed, InMemorySupervisor, Outcome

KEY = bytes(range(32))


class KeptHints:
    """A publisher that keeps what was published."""

    def __init__(self) -> None:
        self.hints: list[Hint] = []

    def publish(self, hints: Sequence[Hint]) -> None:
        self.hints.extend(hints)

    def ids(self) -> list[str]:
        """Every id published so far, in order."""
        return [identifier for hint in self.hints for identifier in hint.invocation_ids]


class FailingLedger:
    """A ledger that can be away, and whose commits can lose their answer."""

    def __init__(self, inner: Ledger) -> None:
        self.inner = inner
        self.is_away = False
        self.is_away_to_readers = False
        self.unanswered: list[bool] = []
        """For the writes to come whose answer is lost: whether they are committed all the same."""
        self.before_write: Callable[[], None] | None = None

    @property
    def info(self) -> LedgerInfo:
        return self.inner.info

    def read(self) -> AbstractContextManager[LedgerView]:
        if self.is_away or self.is_away_to_readers:
            raise LedgerUnavailableError("taken away")
        return self.inner.read()

    @contextmanager
    def write(self, keys: Iterable[str] = (), *, control: bool = False) -> Iterator[LedgerTransaction]:
        if self.is_away:
            raise LedgerUnavailableError("taken away")
        if self.before_write is not None:
            act, self.before_write = self.before_write, None
            act()
        if not self.unanswered:
            with self.inner.write(keys, control=control) as transaction:
                yield transaction
            return
        try:
            with self.inner.write(keys, control=control) as transaction:
                yield transaction
                if not self.unanswered[0]:
                    raise _NotCommittedError
        except _NotCommittedError:
            pass
        self.unanswered.pop(0)
        raise CommitUnknownError("the answer was lost")

    def settings(self) -> Mapping[str, str]:
        return self.inner.settings()

    def close(self) -> None:
        self.inner.close()


class _NotCommittedError(Exception):
    """Rolls the inner transaction back."""


def tools() -> dict[str, Tool]:
    """The built-in contracts by name."""
    return {tool.name: tool for tool in builtin_tools()}


class Workbench:
    """A pool's parts over one ledger. `answer` is what the supervisor says of each call."""

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        *,
        pool: str = "pure",
        answer: Callable[[Call], Outcome] = lambda _call: Completed(0, {}),
        settings: Settings | None = None,
        faults: FaultPoints | None = None,
        boot: str = "boot-1",
        clock: ManualClock | None = None,
        contracts: Sequence[Tool] = (),
    ) -> None:
        self.ledger = ledger
        self.settings = settings or Settings()
        self.hints = KeptHints()
        self.waker = ManualWaker()
        self.governance = Ed25519Signer.from_bytes(KEY)
        self.pool_signer = Ed25519Signer.from_bytes(KEY[::-1])
        self.supervisor = InMemorySupervisor(answer)
        self.is_stopping = False
        self.has_failed = False
        self.given_up = threading.Event()
        self.boottime_ns = 1_000_000_000
        self.living: set[str] = set()
        self.clock = clock or ManualClock()
        faults = faults or NoFaults()
        self.execution = Execution(
            ledger,
            Line(self.settings),
            self.hints,
            self.waker,
            self.settings,
            faults,
            self._unseal,
            self._boottime,
        )
        self.spool = Spool(folder / "spool", boot, 2, 65_536)
        store = ContractStore(ledger)
        digests = {tool.qualified_name: tool.digest for tool in (*builtin_tools(), *contracts)}
        toolset = BuiltinToolset(digests, SandboxReport(strength="N"))
        self.drops = Drops()
        self.claiming = Claiming(
            self.execution,
            Claimant("worker-1", boot, pool),
            store,
            toolset,
            SealVerifier(Ed25519KeyRing({self.governance.kid: self.governance.public_hex}), Purpose.PERMIT),
            self.drops,
        )
        self.running = Running(
            self.execution,
            self.supervisor,
            folder / "workspaces",
            faults,
            lambda: self.is_stopping,
            self._boottime,
        )
        self.reporting = Reporting(self.pool_signer, "worker-1", self.settings, self.clock.now_us, Schemas())
        self.delivery = Delivery(
            self.execution, self.spool, TenacityInsist(self.given_up, 0.001, 0.001), faults
        )
        self.recovery = Recovery(
            self.execution, self.reporting, store, folder / "spool", lambda name: name in self.living | {boot}
        )
        self.serving = Serving(
            pool=pool,
            execution=self.execution,
            claiming=self.claiming,
            running=self.running,
            reporting=self.reporting,
            delivery=self.delivery,
            recovery=self.recovery,
            settings=self.settings,
            faults=faults,
            is_stopping=lambda: self.is_stopping,
            stop_failed=self._fail,
            boottime=self._boottime,
        )
        self.serving.mend()

    def serve(self, *invocation_ids: str) -> None:
        """One hint."""
        self.serving.serve(invocation_ids)

    def _fail(self) -> None:
        self.has_failed = True

    def _boottime(self) -> int:
        return self.boottime_ns

    @staticmethod
    def _unseal(stored: JsonObject, pointers: Sequence[str], identifier: str) -> JsonObject:
        return opened_arguments(stored, pointers, PlainSealer(), identifier)


class PlainSealer:
    """A sealer that hides nothing, for tests of what surrounds it."""

    def seal(self, plain: bytes, context: bytes) -> str:
        return f"{context.hex()}.{plain.hex()}"

    def open(self, sealed: str, context: bytes) -> bytes:
        place, _, plain = sealed.partition(".")
        if place != context.hex():
            raise ValueError("sealed for another place")
        return bytes.fromhex(plain)
