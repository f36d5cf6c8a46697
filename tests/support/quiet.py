"""Waits until a hurt system is quiet again: nothing moves any more that could."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.embedded.directory import DataDirectory
from gateway.reading import Reading, open_reading
from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.errors import InterlockError
from interlock.event import StreamKind
from tests.support.backlog import OPEN_PHASES, held_of
from tests.support.calling import Call, Fate, Verdict
from tests.support.checker import MANY
from tests.support.wait import until

QUIET_SECONDS = 40.0


def wait_until_quiet(directory: DataDirectory, calls: Sequence[Call], seconds: float = QUIET_SECONDS) -> None:
    """Until every accepted call rests and the views stand at the end; else AssertionError with what moves."""
    moving: list[str] = ["not looked yet"]

    def is_quiet() -> bool:
        moving[:] = what_moves(directory, calls)
        return not moving

    try:
        until(is_quiet, seconds, "everything is quiet")
    except AssertionError:
        shown = "\n".join(moving[:30])
        raise AssertionError(f"not quiet within {seconds} s: {len(moving)} move:\n{shown}") from None


def what_moves(directory: DataDirectory, calls: Sequence[Call]) -> list[str]:
    """What has not come to rest, in words."""
    try:
        with open_reading(directory) as reading:
            return _what_moves(reading, calls)
    except InterlockError as error:
        return [str(error)]


def _what_moves(reading: Reading, calls: Sequence[Call]) -> list[str]:
    with reading.ledger.read() as view:
        heads = {head.id: head for head in view.heads_of(StreamKind.INVOCATION.value, limit=MANY)}
        last = view.last_seq()
    answered = {call.id for call in calls if call.verdict in (Verdict.APPROVE, Verdict.DENY)}
    held = held_of(heads.values())
    moving = [
        f"{head.id} ({head.tool}, {head.session}/{head.stage}): {head.phase} ready={head.ready} "
        f"published={head.published_us} attempt={head.attempt}"
        for head in heads.values()
        if (head.phase in OPEN_PHASES and head.id not in held)
        or (head.phase == "awaiting_approval" and head.id in answered)
    ]
    lost = [call.id for call in calls if call.fate is Fate.OK and call.id not in heads]
    moving += [f"{identifier}: accepted and not there" for identifier in lost]
    if reading.projection is None:
        return [*moving, "nothing is projected"]
    if not isinstance(reading.ledger, SqliteLedger):
        unplaced = reading.ledger.records().unsequenced(1, older_than_us=0)
        moving += [f"{event.type} of {event.stream_id} has no number yet" for event in unplaced]
    seq = reading.projection.checkpoint().seq
    return moving if seq == last else [*moving, f"the views stand at {seq} of {last}"]
