"""A projection in memory: for tests, and for folding a log that nobody wants to keep.

Same guards as a stored one; it ends with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

from interlock.projection import Checkpoint, StoppedSession
from interlock.reduce import REDUCER_VERSION
from interlock.state import SessionName, ToolInvocationRecord, ToolState
from interlock.workspace import DEFAULT_TENANT

TOOL_STATE = "tool_state"


class InMemoryProjection:
    """Projection that ends with the process. Safe for threads."""

    def __init__(self, name: str = TOOL_STATE) -> None:
        self._lock = Lock()
        self._checkpoint = Checkpoint(name, 0, 1, REDUCER_VERSION, "")
        self._records: dict[str, ToolInvocationRecord] = {}
        self._stopped: dict[SessionName, StoppedSession] = {}

    def checkpoint(self) -> Checkpoint:
        with self._lock:
            return self._checkpoint

    def records(self, invocation_ids: Iterable[str]) -> dict[str, ToolInvocationRecord]:
        with self._lock:
            return {
                identity: self._records[identity] for identity in invocation_ids if identity in self._records
            }

    def stopped(self) -> dict[SessionName, StoppedSession]:
        with self._lock:
            return dict(self._stopped)

    def store(
        self,
        before: Checkpoint,
        after: Checkpoint,
        records: Sequence[ToolInvocationRecord],
        stopped: Sequence[StoppedSession] = (),
    ) -> bool:
        with self._lock:
            if self._checkpoint != before:
                return False
            self._checkpoint = after
            self._records |= {record.invocation_id: record for record in records}
            self._stopped |= {stop.name: stop for stop in stopped}
            return True

    def restart(self, before: Checkpoint, after: Checkpoint) -> bool:
        with self._lock:
            if self._checkpoint != before:
                return False
            self._checkpoint, self._records, self._stopped = after, {}, {}
            return True

    def state(self, session: str, tenant: str = DEFAULT_TENANT) -> ToolState:
        with self._lock:
            records = [
                record
                for record in self._records.values()
                if (record.tenant, record.session) == (tenant, session)
            ]
        return ToolState(session, tuple(sorted(records, key=lambda record: record.position)), tenant)

    def sessions(self) -> list[SessionName]:
        with self._lock:
            return sorted({SessionName(record.tenant, record.session) for record in self._records.values()})
