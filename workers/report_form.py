"""Reports as JSON, as the spool keeps them, and back."""

from __future__ import annotations

from governance.execution import Reported, outcome_from
from governance.ledger import StageKey
from interlock.canonical import Json, JsonObject
from interlock.event import EVENT_TYPES


def report_to_json(reported: Reported) -> JsonObject:
    """A report as JSON, for the spool."""
    outcome = reported.outcome
    return {
        "invocation_id": reported.invocation_id,
        "type": type(outcome).__name__,
        "payload": outcome.to_json(),
        "stage": list(reported.stage),
        "evidence": [[type(word).__name__, word.to_json()] for word in reported.evidence],
        "wait_us": reported.wait_us,
    }


def report_from_json(value: JsonObject) -> Reported:
    """The report that `report_to_json` wrote; raises KeyError and pydantic's ValidationError."""
    evidence = tuple(
        EVENT_TYPES[name].payload.model_validate(word) for name, word in _pairs(value["evidence"])
    )
    return Reported(
        invocation_id=str(value["invocation_id"]),
        told=outcome_from(str(value["type"]), value["payload"]),  # type: ignore[arg-type]  # validated there
        stage=StageKey(*(str(part) for part in _items(value["stage"]))),
        evidence=evidence,
        wait_us=int(str(value["wait_us"])),
    )


def _items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _pairs(value: Json) -> list[tuple[str, Json]]:
    return [(str(pair[0]), pair[1]) for pair in _items(value) if isinstance(pair, list)]
