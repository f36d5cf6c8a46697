"""What the events of an invocation, and of a session, add up to: frozen records with one form in bytes.

Holds what was folded and never folds. Pure: no clock, no store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from interlock.canonical import Json, JsonObject, canonical, plainly_written, sha256_hex
from interlock.workspace import DEFAULT_TENANT


class SessionName(NamedTuple):
    """Which session: the same name in another tenant is another session."""

    tenant: str
    session: str

    def __str__(self) -> str:
        return self.session if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{self.session}"


@dataclass(frozen=True)
class ToolInvocationRecord:
    """Everything the events of one invocation add up to.

    Without slots on purpose: one is made for every folded event. A dict is copied at once, slots one by one.
    """

    invocation_id: str
    position: int
    """Sequence number of its request: the order of records in a session."""
    version: int
    """Version of the last event folded."""
    status: str
    phase: str
    tool: str
    tool_version: str
    tier: str
    pool: str
    tenant: str
    client: str
    subject: str | None
    session: str
    stage: str
    route: str | None
    cause: str
    arguments_hash: str
    action_digest: str
    requested_at_us: int
    started_at_us: int | None = None
    completed_at_us: int | None = None
    """None until the status is terminal."""
    attempt: int = 0
    """Attempts whose run may have begun."""
    nonce: str | None = None
    """Nonce of the claim that stands."""
    granted_by: str | None = None
    permit_digest: str | None = None
    approvers: tuple[str, ...] = ()
    votes: int = 0
    cancel_requested: bool = False
    reason_code: str | None = None
    """Why it waits or ended as it did."""
    reason: str | None = None
    receipt_digest: str | None = None
    exit_code: int | None = None
    output_summary: str | None = None

    def to_json(self) -> JsonObject:
        """A fresh JSON object of this record."""
        return {**vars(self), "approvers": list(self.approvers)}

    def to_bytes(self) -> bytes:
        """The canonical bytes of `to_json`, which a projection stores."""
        values = vars(self)
        # No payload was validated, and a field may hold whatever stood there: only what is plain goes here.
        if _PLAIN.issuperset(map(type, values.values())) and _TEXT.issuperset(map(type, self.approvers)):
            written = plainly_written(values)
            if written is not None:
                return written
        return canonical(self.to_json())

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ToolInvocationRecord:
        """Read what `to_json` wrote; raises TypeError and KeyError for anything else."""
        return cls(**{**value, "approvers": tuple(value["approvers"])})


def record_with(record: ToolInvocationRecord, /, **changes: Any) -> ToolInvocationRecord:
    """A record with other fields: what `dataclasses.replace` makes, at a tenth of its price.

    Raises TypeError for a field that there is none of.
    """
    return record_changed(record, changes)


def record_changed(record: ToolInvocationRecord, changes: Mapping[str, Any]) -> ToolInvocationRecord:
    """As `record_with`: made for every folded event."""
    values = {**vars(record), **changes}
    if len(values) != _FIELDS:
        raise TypeError(f"a record has no field {next(iter(changes.keys() - vars(record).keys()))!r}")
    copy = object.__new__(ToolInvocationRecord)
    # Past the class's own refusal: nobody else has seen the copy yet.
    object.__setattr__(copy, "__dict__", values)
    return copy


BLANK = ToolInvocationRecord(*("", 0, 0, "", "", "", "", "", "", "", "", None, "", "", None, "", "", "", 0))
"""What the first event of an invocation changes."""

_FIELDS = len(fields(ToolInvocationRecord))
_TEXT = frozenset((str,))
_PLAIN = frozenset((str, int, bool, type(None), tuple))


@dataclass(frozen=True, slots=True)
class ToolState:
    """Per session of a tenant, the folded records of all invocations, in the order of their requests."""

    session: str
    records: tuple[ToolInvocationRecord, ...] = ()
    tenant: str = DEFAULT_TENANT

    @property
    def name(self) -> SessionName:
        return SessionName(self.tenant, self.session)

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """The record of one invocation, if the session has it."""
        return next((r for r in self.records if r.invocation_id == invocation_id), None)

    def to_bytes(self) -> bytes:
        """Canonical bytes; equal states have equal bytes."""
        records: list[Json] = [record.to_json() for record in self.records]
        value: JsonObject = {"tenant": self.tenant, "session": self.session, "records": records}
        return canonical(value)

    @property
    def digest(self) -> str:
        return sha256_hex(self.to_bytes())
