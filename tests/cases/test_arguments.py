"""Arguments: numbers, text, unknown keys, dates, patterns, JSON in strings. One verdict by every face."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.canonical import thaw
from interlock.identifier import new_id
from tests.support.live import FACES, Face, Live

Case = Callable[[str], Any]

REFUND: dict[str, Any] = {
    "name": "payments.refund",
    "description": "Gives money back.",
    "tier": "T2",
    "parameters": {
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 100_000},
            "reason": {"type": "string", "maxLength": 2_000},
        },
        "required": ["order_id", "amount"],
        "additionalProperties": False,
    },
}


def register(live: Live, folder: Path, *tools: dict[str, Any]) -> str:
    """Register contracts in a catalogue of their own; its name."""
    catalogue = f"c{new_id()[-8:]}"
    live.add_tools(catalogue, tools, folder)
    return catalogue


def tool_of(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": "A case.", "parameters": parameters}


def true_arguments(live: Live, invocation_id: str | None) -> Any:
    """The arguments as the ledger holds them."""
    assert invocation_id is not None
    return thaw(live.docket(invocation_id).requested.arguments)


def test_arg_01_a_number_has_one_form(live: Live, face: Face, case: Case, folder: Path) -> None:
    said = case("ARG-01")["input"]
    catalogue = register(live, folder, tool_of(said["tool"], said["schema"]))
    verdicts = [face.submit(live, f"{catalogue}/{said['tool']}", raw) for raw in said["raw_arguments"]]
    taken, refused = verdicts[:3], verdicts[3:]
    assert [verdict.code for verdict in taken] == ["", "", ""]
    dockets = [live.docket(str(verdict.invocation_id)) for verdict in taken]
    assert len({docket.requested.arguments_hash for docket in dockets}) == 1
    for verdict in taken:
        ticket = true_arguments(live, verdict.invocation_id)["ticket_id"]
        assert (ticket, type(ticket)) == (60, int)
    assert [(verdict.code, verdict.pointer) for verdict in refused] == [("SCHEMA_INVALID", "/ticket_id")] * 3


def test_arg_03_nul_and_bad_unicode_are_refused_and_text_is_left_alone(
    live: Live, face: Face, case: Case, folder: Path
) -> None:
    catalogue = register(live, folder, REFUND)
    raws = case("ARG-03")["input"]["raw_arguments"]
    nul, escaped, surrogate, spellings = (
        face.submit(live, f"{catalogue}/payments.refund", raw, stage=str(n)) for n, raw in enumerate(raws)
    )
    assert [nul.code, surrogate.code] == ["JSON_NUL", "JSON_UNICODE"]
    assert true_arguments(live, escaped.invocation_id)["reason"] == "a\\u0000b"
    assert true_arguments(live, spellings.invocation_id)["reason"] == "e\u0301 vs \u00e9"


def test_arg_03_bytes_of_a_program_are_kept_as_bytes(live: Live) -> None:
    opened = live.command("sessions", "open", "bytes", "--mode", "operate")
    assert opened.returncode == 0, opened.stderr.decode()
    raw = json.dumps({"argv": ["printf", "a\\000b"]})
    verdict = FACES["queue"].submit(live, "shell.run", raw, session="bytes")
    output = live.receipt(str(verdict.invocation_id))["structured_output"]
    assert output["stdout"]["encoding"] == "base64", output
    assert b64decode(output["stdout"]["bytes"]) == b"a\x00b"


def test_arg_06_an_unknown_key_is_named_with_its_nearest(
    live: Live, face: Face, case: Case, folder: Path
) -> None:
    items = case("ARG-06")["input"]["items"]
    refund = json.loads(json.dumps(REFUND))
    refund["parameters"]["properties"].update(items[1]["schema_adds"])
    tools = [
        tool_of(items[0]["tool"], items[0]["schema"]),
        refund,
        tool_of(items[2]["tool"], items[2]["schema"]),
    ]
    catalogue = register(live, folder, *tools)
    verdicts = [face.submit(live, f"{catalogue}/{i['tool']}", json.dumps(i["arguments"])) for i in items]
    assert [verdict.code for verdict in verdicts] == ["SCHEMA_INVALID"] * 3
    for verdict, (unknown, nearest) in zip(
        verdicts, [("depth", "max_depth"), ("dryRun", "dry_run"), ("status", "state")], strict=True
    ):
        assert unknown in verdict.sentence
        assert nearest in verdict.sentence


def test_arg_08_what_is_no_number_never_reaches_a_threshold(
    live: Live, face: Face, case: Case, folder: Path
) -> None:
    catalogue = register(live, folder, REFUND)
    raws = case("ARG-08")["input"]["raw_arguments"]
    nan, plus, minus, huge, nearly, zero = (
        face.submit(live, f"{catalogue}/payments.refund", raw, stage=str(n)) for n, raw in enumerate(raws)
    )
    assert [nan.code, plus.code, minus.code] == ["JSON_NOT_FINITE"] * 3
    assert huge.code == "JSON_NUMBER_RANGE"
    assert true_arguments(live, nearly.invocation_id)["amount"] == 1000
    assert (zero.code, zero.pointer) == ("SCHEMA_INVALID", "/amount")


def test_sp_01_dates_are_asserted(live: Live, face: Face, case: Case, folder: Path) -> None:
    due = {"type": "object", "properties": {"due": {"type": "string", "format": "date-time"}}}
    catalogue = register(live, folder, tool_of("due", due))
    raws = case("SP-01")["input"]["arguments"]
    codes = [face.submit(live, f"{catalogue}/due", raw, stage=str(n)).code for n, raw in enumerate(raws)]
    assert codes == ["SCHEMA_INVALID"] * 3 + [""] * 2


def test_sp_02_patterns_are_judged_at_registration_and_in_linear_time(
    live: Live, face: Face, case: Case, folder: Path
) -> None:
    said = case("SP-02")["input"]
    letters, slow, broken = (
        {"type": "object", "properties": {"v": {"type": "string", **schema}}} for schema in said["schemas"]
    )
    file = folder / "broken.json"
    file.write_text(json.dumps([tool_of("broken", broken)]))
    done = live.command("tools", "check", str(file))
    assert done.returncode != 0
    catalogue = register(live, folder, tool_of("letters", letters), tool_of("slow", slow))
    raw = json.dumps({"v": said["value"]})
    codes = [face.submit(live, f"{catalogue}/{name}", raw, stage=name).code for name in ("letters", "slow")]
    assert codes == ["SCHEMA_INVALID"] * 2


def test_sp_03_json_in_a_string_is_never_converted(live: Live, face: Face, case: Case, folder: Path) -> None:
    fields = {"type": "object", "properties": {"fields": {"type": "object"}}}
    text = {"type": "object", "properties": {"fields": {"type": "string"}}}
    catalogue = register(live, folder, tool_of("fields", fields), tool_of("text", text))
    as_value, as_text = case("SP-03")["input"]["arguments"]
    assert face.submit(live, f"{catalogue}/fields", json.dumps(as_value)).code == "SCHEMA_INVALID"
    assert face.submit(live, f"{catalogue}/fields", json.dumps(as_text)).code == "ARGUMENTS_NOT_OBJECT"
    kept = face.submit(live, f"{catalogue}/text", json.dumps(as_value))
    assert true_arguments(live, kept.invocation_id) == as_value


@pytest.mark.parametrize(
    "other",
    [
        {"tool": "echo", "raw": '{"value": 5000}'},
        {"tool": "fs.list", "raw": "{}"},
        {"tool": "echo", "raw": '{"value": 5}', "subject": "u-18"},
        {"tool": "echo", "raw": '{"value": 5}', "session": "elsewhere"},
    ],
)
def test_sp_07_a_key_used_with_other_content_is_refused(
    live: Live, face: Face, other: dict[str, str]
) -> None:
    key = new_id()
    common = {"subject": "u-17", "session": "keys", "key": key}
    first = face.submit(live, "echo", '{"value": 5}', **common)
    assert first.code == ""
    again = common | {name: other[name] for name in ("subject", "session") if name in other}
    refused = face.submit(live, other["tool"], other["raw"], **again)
    assert (refused.code, refused.recorded) == ("KEY_REUSED", False)
