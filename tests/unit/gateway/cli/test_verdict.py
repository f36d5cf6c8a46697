"""Exit codes follow the phase and the status, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.cli.verdict import exit_of_answer, exit_of_record
from interlock.answer import Answer
from interlock.state import ToolInvocationRecord

RECORD = ToolInvocationRecord(
    invocation_id="i", position=1, version=1, status="REQUESTED", phase="deciding", tool="echo",
    tool_version="1", tier="T0", pool="pure", tenant="default", client="local", subject="agent", session="s",
    stage="g", route=None, cause="submission:i", arguments_hash="", action_digest="", requested_at_us=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("status", "phase", "expected"),
    [
        ("COMPLETED", "done", 0),
        ("REQUESTED", "awaiting_approval", 3),
        ("REJECTED", "done", 4),
        ("FAILED", "done", 5),
        ("STARTED", "reconciliation_required", 6),
        ("REQUESTED", "queued", 0),
        ("STARTED", "running", 0),
    ],
)
def test_a_record_has_one_exit_code(status: str, phase: str, expected: int) -> None:
    assert exit_of_record(replace(RECORD, status=status, phase=phase), check=False) == expected


@pytest.mark.parametrize(
    ("exit_code", "check", "expected"), [(1, False, 0), (1, True, 5), (0, True, 0), (None, True, 0)]
)
def test_a_programs_exit_code_counts_with_check_only(
    exit_code: int | None, check: bool, expected: int
) -> None:
    record = replace(RECORD, status="COMPLETED", phase="done", exit_code=exit_code)
    assert exit_of_record(record, check=check) == expected


@pytest.mark.parametrize(
    ("status", "phase", "expected"),
    [
        ("accepted", "queued", 0),
        ("accepted", "awaiting_approval", 3),
        ("refused", "done", 4),
        ("refused", "", 4),
    ],
)
def test_an_answer_has_one_exit_code(status: str, phase: str, expected: int) -> None:
    assert exit_of_answer(Answer.model_validate({"status": status, "phase": phase})) == expected
