"""What is written at once has the bytes of the long way, or is left to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from governance.execution import Reported, Written
from interlock.canonical import INTEGER_MAX, canonical
from interlock.event import ToolExecutionCompleted
from interlock.mark import mark_non_finite
from tests.support.permitted import Asked, grant
from tests.support.workbench import FailingLedger, Workbench, tools
from workers.claim import Prepared
from workers.draft import PlainDraft
from workers.receipt import PLAIN_BYTES_MAX, plain_output
from workers.supervisor.port import AffectedEntity, Completed, Failed, Outcome, SandboxReport

ECHO = tools()["echo"]
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just("$interlock")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


def items(bench: Workbench, count: int) -> list[Prepared]:
    wanted = [Asked(ECHO, {"value": n}, stage=f"g{n}") for n in range(count)]
    return bench.claiming.prepare(grant(bench.ledger, bench.governance, wanted))


def long_way(bench: Workbench, ran: Sequence[tuple[Prepared, Outcome]]) -> list[Reported]:
    """The reports without the short way."""

    class Long(type(bench.reporting)):  # type: ignore[misc]  # of whatever class the bench uses
        def _plain(self, *_: object) -> None:
            return None

    reporting = bench.reporting
    long = Long(reporting.signer, reporting.worker, reporting.settings, reporting.now_us, reporting.schemas)
    reports: list[Reported] = long.reports(ran)
    return reports


def payloads(reports: Sequence[Reported]) -> list[bytes]:
    return [report.event().payload for report in reports]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(outputs=st.lists(st.fixed_dictionaries({"value": VALUES}), min_size=1, max_size=5))
def test_a_report_has_the_same_bytes_either_way(bench: Workbench, outputs: list[dict[str, Any]]) -> None:
    lot = items(bench, len(outputs))
    ran: list[tuple[Prepared, Outcome]] = [
        (item, Completed(0, output)) for item, output in zip(lot, outputs, strict=True)
    ]
    short, long = bench.reporting.reports(ran), long_way(bench, ran)
    assert payloads(short) == payloads(long)
    assert [report.outcome for report in short] == [report.outcome for report in long]


def test_the_plain_are_written_at_once_and_the_others_beside_them_are_not(bench: Workbench) -> None:
    lot = items(bench, 7)
    said: list[Outcome] = [
        Completed(0, {"value": "é\n%b"}),
        Completed(3, {"value": 1}, duration_ms=12, sandbox=SandboxReport("N", ("landlock",))),
        Completed(0, {"value": 1}, affected=(AffectedEntity("file", "a", None, None),)),
        Completed(0, {"value": 1}, metrics={"n": 1}),
        Completed(0, {"value": 1}, truncated=("stdout",)),
        Completed(0, {"wrong": 1}),
        Failed("TOOL_CRASHED", "it fell", began=True),
    ]
    ran = list(zip(lot, said, strict=True))
    reports = bench.reporting.reports(ran)
    assert [isinstance(report.told, Written) for report in reports] == [True, True, *[False] * 5]
    assert payloads(reports) == payloads(long_way(bench, ran))


def test_what_hides_something_takes_the_long_way(bench: Workbench) -> None:
    [item] = items(bench, 1)
    requested = item.work.requested.model_copy(update={"sensitive": ("/value",)})
    hiding = replace(item, work=replace(item.work, requested=requested))
    assert bench.reporting._plain(hiding, Completed(0, {"value": 0})) is None


@given(VALUES)
def test_plain_output_is_what_marking_leaves_as_it_is(value: Any) -> None:
    output = {"value": value}
    written = plain_output(output)
    if written is not None:
        assert written == canonical(mark_non_finite(output))


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    "output",
    [
        nested(64), nested(65), nested(66), {"$interlock": 1}, {"a": [{"$interlock": 1}]}, {1: 2}, {"é": 1},
        {"a": "\0"}, {"a": "\ud800"}, {"a": 1.0}, {"a": -0.0}, {"a": 1e-7}, {"a": float("nan")},
        {"a": INTEGER_MAX + 1}, {"a": b"x"}, {"a": object()}, {"a": [0] * PLAIN_BYTES_MAX}, [1], None, "text",
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_what_may_have_to_be_marked_is_not_plain(output: object) -> None:
    assert plain_output(output) is None


def test_what_was_written_at_once_can_be_read_as_its_word(bench: Workbench) -> None:
    [item] = items(bench, 1)
    assert isinstance(bench.reporting._plain(item, Completed(0, {"value": 1})), PlainDraft)
    [report] = bench.reporting.reports([(item, Completed(0, {"value": 1}))])
    assert isinstance(report.told, Written)
    assert isinstance(report.outcome, ToolExecutionCompleted)
    assert report.outcome.to_bytes() == report.told.payload
    assert report.nonce == report.outcome.nonce == item.nonce


def test_a_written_outcome_that_came_too_late_is_kept_like_any_other(
    bench: Workbench, ledger: FailingLedger
) -> None:
    [item] = items(bench, 1)
    bench.claiming.claim([item])
    [report] = bench.reporting.reports([(item, Completed(0, {"value": 1}))])
    assert bench.execution.report([report]) == {item.invocation_id: "recorded"}
    assert bench.execution.report([report]) == {item.invocation_id: "known"}
