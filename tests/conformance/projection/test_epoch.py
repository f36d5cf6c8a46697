"""Epochs of a stored projection: one is live, another is built beside it, and what is dead goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from interlock.errors import RetryLaterError
from interlock.projection import Projection
from interlock.state import ToolState
from tests.conformance.projection.conftest import Stored
from tests.conformance.projection.test_projection import RECORD, STOP, _next


def _filled(projection: Projection) -> None:
    before = projection.checkpoint()
    assert projection.store(before, _next(before, 1), [RECORD], [STOP])


def test_an_epoch_beside_the_live_one_is_empty_and_seen_by_nobody(stored: Stored) -> None:
    _filled(stored)
    beside = stored.beside()
    assert beside.checkpoint().epoch == stored.checkpoint().epoch + 1
    assert beside.checkpoint().seq == 0
    assert (beside.sessions(), beside.stopped()) == ([], {})
    before = beside.checkpoint()
    assert beside.store(before, _next(before, 5), [replace(RECORD, phase="done")])
    assert stored.records(["i-1"]) == {"i-1": RECORD}
    assert stored.checkpoint().seq == 1


def test_an_epoch_that_was_made_live_is_what_everybody_sees_and_the_old_one_can_go(stored: Stored) -> None:
    _filled(stored)
    beside = stored.beside()
    before = beside.checkpoint()
    later = replace(RECORD, phase="done")
    assert beside.store(before, _next(before, 5), [later])
    assert beside.make_live()
    stored.drop_dead()
    assert stored.checkpoint() == beside.checkpoint() == _next(before, 5)
    assert stored.state("s-1") == ToolState("s-1", (later,))
    assert stored.stopped() == {}


def test_an_epoch_that_was_dropped_stores_nothing_and_never_becomes_live(stored: Stored) -> None:
    _filled(stored)
    beside = stored.beside()
    before = beside.checkpoint()
    stored.drop_dead()
    assert not beside.store(before, _next(before, 1), [RECORD])
    assert not beside.make_live()
    with pytest.raises(RetryLaterError):
        beside.checkpoint()
    assert stored.checkpoint().seq == 1


def test_a_restart_drops_what_is_being_built_beside(stored: Stored) -> None:
    _filled(stored)
    beside = stored.beside()
    at = stored.checkpoint()
    assert stored.restart(at, at._replace(seq=0, epoch=at.epoch + 2, hash=""))
    assert not beside.make_live()
    assert stored.checkpoint().epoch == at.epoch + 2


def test_a_frozen_reading_stands_still_while_the_projection_goes_on(stored: Stored) -> None:
    _filled(stored)
    with stored.frozen() as reading:
        before = stored.checkpoint()
        assert stored.store(before, _next(before, 2), [replace(RECORD, phase="done")])
        assert reading.checkpoint() == before
        assert reading.records(["i-1"]) == {"i-1": RECORD}
        assert reading.sessions() == [STOP.name._replace(session="s-1")]
        assert list(reading.stopped()) == [STOP.name]


def test_the_stored_bytes_are_those_of_the_state(stored: Stored) -> None:
    before = stored.checkpoint()
    records = [replace(RECORD, invocation_id=f"i-{n}", position=n, cause="ünï\u2028") for n in (3, 2)]
    assert stored.store(before, _next(before, 3), records)
    with stored.frozen() as reading:
        for view in (stored, reading):
            assert view.state_bytes("s-1") == stored.state("s-1").to_bytes()
            assert view.state_bytes("s-9") == ToolState("s-9").to_bytes()
