"""Calls and outcomes as JSON bytes: between pool and supervisor, and in an orphaned outcome's file.

Decides no outcome. Bytes travel as base64, so any content gives valid JSON.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.supervisor.port import (
    AffectedEntity,
    Call,
    Completed,
    Failed,
    NotStarted,
    Outcome,
    SandboxReport,
)


def plain(value: Any) -> Any:
    """`value` with frozen mappings and sequences turned into dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def encode_call(call: Call) -> dict[str, Any]:
    """The call as a JSON object."""
    fields = {field.name: getattr(call, field.name) for field in dataclasses.fields(call)}
    fields["arguments"] = plain(call.arguments)
    fields["workspace"] = None if call.workspace is None else os.fspath(call.workspace)
    fields["capabilities"] = sorted(call.capabilities)
    return fields


def decode_call(fields: dict[str, Any]) -> Call:
    """The call that `encode_call` described."""
    workspace = fields["workspace"]
    return Call(
        **{
            **fields,
            "workspace": None if workspace is None else Path(workspace),
            "capabilities": frozenset(fields["capabilities"]),
        }
    )


def encode_outcome(outcome: Outcome) -> dict[str, Any]:
    """The outcome as a JSON object; `kind` is completed, failed or not_started."""
    match outcome:
        case Completed():
            return {"kind": "completed", **_evidence(outcome)}
        case Failed():
            raw = base64.b64encode(outcome.raw_output).decode()
            return {"kind": "failed", **_evidence(outcome), "raw_output": raw}
        case NotStarted():
            return {"kind": "not_started", "code": outcome.code, "message": outcome.message}


def decode_outcome(fields: dict[str, Any]) -> Outcome:
    """The outcome that `encode_outcome` described."""
    rest = {name: value for name, value in fields.items() if name != "kind"}
    if fields["kind"] == "not_started":
        return NotStarted(**rest)
    rest["affected"] = tuple(AffectedEntity(**entity) for entity in rest["affected"])
    rest["sandbox"] = SandboxReport(rest["sandbox"]["strength"], tuple(rest["sandbox"]["layers"]))
    rest["truncated"] = tuple(rest["truncated"])
    if fields["kind"] == "completed":
        return Completed(**rest)
    return Failed(**{**rest, "raw_output": base64.b64decode(rest["raw_output"])})


def to_bytes(document: dict[str, Any]) -> bytes:
    """JSON bytes of a document of ours; floats and lone surrogates never get this far."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def write_orphan(folder: Path, call: Call, outcome: Outcome) -> Path:
    """Writes the outcome nobody is left to take, durably, and gives its file.

    The file appears whole or not at all: `{"invocation_id", "session_id", "tool", "claim", "outcome"}`.
    """
    document = {
        "invocation_id": call.invocation_id,
        "session_id": call.session_id,
        "tool": call.tool,
        "claim": call.claim,
        "outcome": encode_outcome(outcome),
    }
    target = folder / f"{call.invocation_id}.{os.getpid()}.json"
    partial = target.with_suffix(".partial")
    with open(partial, "xb", opener=_private) as file:
        file.write(to_bytes(document))
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, target)
    _sync_folder(folder)
    return target


def read_orphan(file: Path) -> tuple[dict[str, str], Outcome]:
    """What `write_orphan` wrote: the names of the call, and its outcome."""
    document = json.loads(file.read_bytes())
    return document, decode_outcome(document.pop("outcome"))


def _evidence(outcome: Completed | Failed) -> dict[str, Any]:
    fields = dataclasses.asdict(outcome)
    fields["metrics"], fields["resources"] = dict(outcome.metrics), dict(outcome.resources)
    return fields


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
