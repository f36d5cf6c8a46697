"""What is published again, and what goes back to governance because no pool claims it."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.dispatch import Dispatch
from tests.support.court import Court


def looks(court: Court, invocation_id: str, count: int, queued_ids: Mapping[str, int]) -> list[list[str]]:
    """The ids published at each of the next looks at one invocation, each when it is due."""
    dispatch = Dispatch(court.ledger, court.line, court.settings)
    found: list[list[str]] = []
    for _ in range(count):
        due = court.due(invocation_id)
        assert due is not None
        assert due.what == "release"
        court.clock.advance((due.at_us - court.clock.now_us()) / 1_000_000)
        hints = dispatch.again([(due, court.head(invocation_id))], queued_ids)
        found.append([identifier for hint in hints for identifier in hint.invocation_ids])
    return found


def test_what_no_pool_claims_is_published_five_times_and_then_judged_again() -> None:
    court = Court()
    identifier = court.say("echo", {"value": 1}).invocation_id
    assert identifier is not None
    assert looks(court, identifier, 5, {}) == [[identifier]] * 4 + [[]]
    assert court.types(identifier)[-1] == "PermitReturned"
    assert (court.head(identifier).phase, court.head(identifier).alone) == ("deciding", True)
    assert [hint.invocation_ids for hint in court.review(identifier)] == [(identifier,)]
    assert court.types(identifier)[-1] == "ApprovalGranted"


def test_its_place_in_the_window_is_another_s_meanwhile() -> None:
    court = Court()
    identifier = court.say("echo", {"value": 1}).invocation_id
    assert identifier is not None
    looks(court, identifier, 5, {})
    with court.ledger.read() as view:
        assert view.published_unclaimed() == {}


def test_what_still_lies_in_its_queue_stays_there() -> None:
    court = Court()
    identifier = court.say("echo", {"value": 1}).invocation_id
    assert identifier is not None
    assert looks(court, identifier, 8, {"pure": 1}) == [[]] * 8
    assert court.head(identifier).phase == "queued"


def test_what_was_lost_together_is_offered_in_ever_smaller_envelopes() -> None:
    court = Court()
    said = court.submit(*(court.proposal("echo", {"value": n}, stage=f"g{n}") for n in range(256)))
    assert [len(hint.invocation_ids) for hint in said.hints] == [256]
    ids = said.hints[0].invocation_ids
    dispatch = Dispatch(court.ledger, court.line, court.settings)
    sizes: list[list[int]] = []
    for _ in range(4):
        dues = [due for identifier in ids if (due := court.due(identifier)) is not None]
        court.clock.advance((dues[0].at_us - court.clock.now_us()) / 1_000_000)
        hints = dispatch.again([(due, court.head(due.id)) for due in dues], {})
        assert sorted(identifier for hint in hints for identifier in hint.invocation_ids) == sorted(ids)
        sizes.append(sorted({len(hint.invocation_ids) for hint in hints}))
    assert sizes == [[64], [16], [4], [1]]
