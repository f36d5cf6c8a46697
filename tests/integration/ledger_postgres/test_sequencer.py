"""One order and one chain, whoever commits when: nothing is skipped, nothing placed twice, one leads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer
from governance.adapters.postgres_ledger.horizon import Horizon, horizon
from governance.adapters.postgres_ledger.sequencer import SequencerSettings
from governance.append import ANY_VERSION
from governance.chain import genesis, link
from governance.ledger import Append
from interlock.canonical import sha256_hex
from interlock.errors import LedgerFencedError, LedgerUnavailableError
from interlock.event import StoredEvent, evidence_stream
from tests.integration.ledger_postgres.conftest import Plain
from tests.support.ledger import an_append, an_event, write
from tests.support.wait import until

QUICK = SequencerSettings(lease_seconds=0.4, beat_seconds=0.0)


def place_all(sequencer: PostgresSequencer) -> None:
    until(lambda: not sequencer.sequence(), 20, "every event has its number")


def log_of(ledger: PostgresLedger) -> list[StoredEvent]:
    """The whole log, which must be dense, chained, and in order within each stream."""
    with ledger.read() as view:
        events = view.range(0, 1_000_000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    previous, versions = genesis(ledger.info.incarnation), dict[object, int]()
    for event in events:
        assert event.hash == link(previous, event, sha256_hex(event.payload))
        assert event.version == versions.get(event.stream, 0) + 1
        previous, versions[event.stream] = event.hash, event.version
    return events


class ManualBoottime:
    """Nanoseconds since boot that a test moves by hand."""

    def __init__(self) -> None:
        self.now = 10**12

    def __call__(self) -> int:
        return self.now


def test_an_event_has_no_number_until_it_is_placed(ledger: PostgresLedger) -> None:
    write(ledger, an_append("i-1"))
    with ledger.read() as view:
        [[event]] = view.events([an_append("i-1").stream]).values()
        assert (event.seq, event.hash, view.last_seq(), view.range(0, 9)) == (0, "", 0, [])
    place_all(PostgresSequencer(ledger, "a"))
    assert [event.stream_id for event in log_of(ledger)] == ["i-1"]


def test_what_commits_late_is_placed_late_and_never_skipped(
    ledger: PostgresLedger, open_ledger: Callable[[], PostgresLedger]
) -> None:
    sequencer = PostgresSequencer(ledger, "a")
    with open_ledger().write() as early:
        early.append([an_append("i-early")])
        write(ledger, an_append("i-late"))
        assert sequencer.sequence(), "what is above the horizon is asked for again at once"
        with ledger.read() as view:
            assert view.last_seq() == 0
        assert horizon(ledger).waiting_s > 0
    place_all(sequencer)
    assert [event.stream_id for event in log_of(ledger)] == ["i-early", "i-late"]
    assert horizon(ledger) == Horizon()


def test_a_transaction_anywhere_in_the_cluster_holds_the_horizon_and_is_seen_by_its_age(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    sequencer, long = PostgresSequencer(ledger, "a"), beside()
    long.execute("BEGIN")
    long.execute("SELECT pg_current_xact_id()")
    write(ledger, an_append("i-1"))
    until(lambda: sequencer.sequence() and horizon(ledger).waiting_s > 0.3, 10, "the horizon's age")
    until(lambda: count_looks(sequencer) < 200, 10, "a stalled horizon is looked at less often")
    long.execute("COMMIT")
    place_all(sequencer)
    assert len(log_of(ledger)) == 1


def count_looks(sequencer: PostgresSequencer) -> int:
    """How many of a thousand calls ask the store."""
    before, looks = sequencer._stall._looks, 0
    for _ in range(1_000):
        assert sequencer.sequence()
        looks += sequencer._stall._looks != before
        before = sequencer._stall._looks
    return looks


def test_a_version_waits_for_the_one_before_it(
    ledger: PostgresLedger, open_ledger: Callable[[], PostgresLedger], beside: Callable[[], Plain]
) -> None:
    sequencer, holder = PostgresSequencer(ledger, "a"), beside()
    with open_ledger().write() as early:
        early.raise_epoch()  # its transaction id is older than that of the version it follows
        holder.execute("BEGIN")
        holder.execute("SELECT pg_current_xact_id()")
        write(ledger, an_append("i-1"), an_append("i-2"))
        early.append([an_append("i-1", 1), an_append("i-3")])
    until(lambda: sequencer.sequence() and len(log_of(ledger)) == 1, 10, "what waits for nothing is placed")
    assert [event.stream_id for event in log_of(ledger)] == ["i-3"]
    assert sequencer.sequence(), "something still waits"
    holder.execute("COMMIT")
    place_all(sequencer)
    placed = [(event.stream_id, event.version) for event in log_of(ledger)]
    assert placed == [("i-3", 1), ("i-1", 1), ("i-1", 2), ("i-2", 1)]


def test_a_batch_has_an_end_and_the_rest_follows(ledger: PostgresLedger) -> None:
    sequencer = PostgresSequencer(ledger, "a", settings=SequencerSettings(batch=50))
    write(ledger, *(an_append(f"i-{number:03}", events=[an_event()] * 2) for number in range(60)))
    assert sequencer.sequence()
    with ledger.read() as view:
        assert view.last_seq() == 50
    place_all(sequencer)
    assert len(log_of(ledger)) == 120


def test_what_was_placed_just_now_is_told_as_the_ledger_has_it(ledger: PostgresLedger) -> None:
    for number in range(4):
        write(ledger, an_append(f"i-{number}"))
    sequencer, other = PostgresSequencer(ledger, "a"), PostgresSequencer(ledger, "b")
    assert sequencer.recent(0, 9) is None
    place_all(sequencer)
    other.sequence()
    told = [event._replace(payload=b"") for event in log_of(ledger)]
    assert (sequencer.recent(0, 3), sequencer.recent(3, 9)) == (told[:3], told[3:])
    assert (sequencer.recent(4, 9), sequencer.recent(1, 9), other.recent(0, 9)) == ([], None, None)


def test_a_page_is_read_whole_though_one_of_it_lies_far_behind(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    sequencer = PostgresSequencer(ledger, "a")
    write(ledger, *(an_append(f"early-{number:03}") for number in range(100)))
    write(ledger, *(an_append(f"late-{number:03}") for number in range(100)))
    place_all(sequencer)
    plain = beside()
    plain.execute("ALTER TABLE event_seq DISABLE TRIGGER USER")
    plain.execute("UPDATE event_seq SET seq = 1000 WHERE seq = 1")
    with ledger.read() as view:
        events = view.range(150, 100)
    assert [event.seq for event in events] == [*range(151, 201), 1000]
    assert [event.stream_id for event in events] == [*(f"late-{n:03}" for n in range(50, 100)), "early-000"]


def test_of_two_one_leads_and_the_other_takes_over_when_it_stands_still(
    ledger: PostgresLedger, open_ledger: Callable[[], PostgresLedger]
) -> None:
    first = PostgresSequencer(ledger, "a", settings=QUICK)
    second = PostgresSequencer(open_ledger(), "b", settings=QUICK)
    place_all(first)
    write(ledger, an_append("i-1"))
    assert not second.sequence()
    assert (first.is_leader, second.is_leader) == (True, False)
    until(lambda: second.sequence() or second.is_leader, 5, "the second takes over")
    place_all(second)
    write(ledger, an_append("i-2"))
    assert not first.sequence(), "one that woke too late writes nothing"
    assert not first.is_leader
    place_all(second)
    assert len(log_of(ledger)) == 2


def test_a_leader_that_lives_keeps_the_lead(
    ledger: PostgresLedger, open_ledger: Callable[[], PostgresLedger]
) -> None:
    boottime = ManualBoottime()
    first = PostgresSequencer(ledger, "a", boottime=boottime)
    second = PostgresSequencer(open_ledger(), "b", boottime=boottime)
    for _ in range(40):
        first.sequence()
        second.sequence()
        boottime.now += 1_000_000_000
    assert (first.is_leader, second.is_leader) == (True, False)


def test_a_pause_of_the_watcher_proves_nothing(
    ledger: PostgresLedger, open_ledger: Callable[[], PostgresLedger]
) -> None:
    boottime = ManualBoottime()
    first = PostgresSequencer(ledger, "a", boottime=boottime)
    second = PostgresSequencer(open_ledger(), "b", boottime=boottime)
    first.sequence()
    second.sequence()
    boottime.now += 3_600 * 10**9
    second.sequence()
    second.sequence()
    assert not second.is_leader, "two looks far apart are not four"


def test_one_that_leaves_is_followed_at_once(
    ledger: PostgresLedger, open_ledger: Callable[[], PostgresLedger]
) -> None:
    first, second = PostgresSequencer(ledger, "a"), PostgresSequencer(open_ledger(), "b")
    place_all(first)
    first.close()
    write(ledger, an_append("i-1"))
    place_all(second)
    assert second.is_leader
    assert len(log_of(ledger)) == 1


def test_a_zombie_in_the_middle_of_its_batch_writes_nothing(
    ledger: PostgresLedger, open_ledger: Callable[[], PostgresLedger]
) -> None:
    zombie = PostgresSequencer(ledger, "a", settings=QUICK)
    other = PostgresSequencer(open_ledger(), "b", settings=QUICK)
    place_all(zombie)
    write(ledger, an_append("i-1"), an_append("i-2"))
    leader = zombie._mine
    assert leader is not None
    original = zombie._place

    def place_late(*said: object) -> object:
        until(lambda: other.sequence() or other.is_leader, 5, "the other takes over")
        place_all(other)
        return original(*said)  # type: ignore[arg-type]  # as it was called

    zombie._place = place_late  # type: ignore[method-assign,assignment]  # late this once
    zombie.sequence()
    assert not zombie.is_leader
    assert [event.stream_id for event in log_of(ledger)] == ["i-1", "i-2"]


def test_after_a_lost_answer_it_goes_on_from_what_is_there(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    sequencer = PostgresSequencer(ledger, "a")
    write(ledger, an_append("i-1"))
    place_all(sequencer)
    write(ledger, an_append("i-2"))
    beside().execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'interlock-ledger' AND datname = current_database()"""
    )
    with pytest.raises(LedgerUnavailableError):
        place_all(sequencer)
    place_all(sequencer)
    assert len(log_of(ledger)) == 2


def test_a_log_from_a_later_life_of_the_cluster_is_fenced(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    beside().execute("UPDATE sequencer SET xid = '1000000000000'")
    with pytest.raises(LedgerFencedError):
        PostgresSequencer(ledger, "a").sequence()


def test_a_row_of_the_sequencer_that_was_put_back_is_fenced(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    write(ledger, an_append("i-1"), an_append("i-2"))
    place_all(PostgresSequencer(ledger, "a"))
    beside().execute("UPDATE sequencer SET seq = seq - 1")
    with pytest.raises(LedgerFencedError, match="put back"):
        PostgresSequencer(ledger, "a").sequence()


def test_a_cut_tail_is_never_filled_again(ledger: PostgresLedger, beside: Callable[[], Plain]) -> None:
    sequencer = PostgresSequencer(ledger, "a")
    write(ledger, an_append("i-1"), an_append("i-2"))
    place_all(sequencer)
    owner = beside()
    for table in ("event_seq", "tool_event"):
        owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
        owner.execute(f"DELETE FROM {table} WHERE ord = (SELECT max(ord) FROM {table})")
    assert ledger.records().issued_seq() == 2
    write(ledger, an_append("i-3"))
    place_all(PostgresSequencer(ledger, "a"))
    with ledger.read() as view:
        assert [event.seq for event in view.range(0, 9)] == [1, 3]


WRITERS, ROUNDS = 4, 40


@pytest.mark.timeout(60)
def test_under_many_writers_and_two_sequencers_every_event_is_placed_once(
    ledger: PostgresLedger, open_ledger: Callable[[], PostgresLedger], rng: random.Random
) -> None:
    stopping = threading.Event()
    written, raised = list[int](), list[Exception]()

    def keep_writing(mine: random.Random) -> None:
        for _ in range(ROUNDS):
            try:
                written.append(write_some(ledger, mine))
            except LedgerUnavailableError as error:
                if not error.data["at_once"]:
                    raised.append(error)

    def keep_placing(sequencer: PostgresSequencer) -> None:
        while not stopping.is_set():
            sequencer.sequence()

    settings = SequencerSettings(batch=7, lease_seconds=0.2)
    sequencers = [PostgresSequencer(open_ledger(), name, settings=settings) for name in ("a", "b")]
    writing = [
        threading.Thread(target=keep_writing, args=(random.Random(rng.random()),)) for _ in range(WRITERS)
    ]
    placing = [threading.Thread(target=keep_placing, args=(one,)) for one in sequencers]
    for thread in writing + placing:
        thread.start()
    for thread in writing:
        thread.join(timeout=50)
    stopping.set()
    for thread in placing:
        thread.join(timeout=10)
    assert raised == []

    def is_done() -> bool:
        more = [one.sequence() for one in sequencers]
        with ledger.read() as view:
            return not any(more) and view.last_seq() == sum(written)

    until(is_done, 10, "the rest")
    assert len(log_of(ledger)) == sum(written)


def write_some(ledger: PostgresLedger, rng: random.Random) -> int:
    """One transaction over a few of a few streams, at the versions it read; how many were appended to."""
    streams = [an_append(f"i-{number}").stream for number in rng.sample(range(12), 3)]
    with ledger.write() as transaction:
        if rng.random() < 0.3:
            transaction.raise_epoch()  # its id is older than what it will follow
        heads = transaction.heads(streams)
        appends = [an_append(s.id, heads[s].version if s in heads else 0) for s in streams]
        appends.append(Append(evidence_stream(streams[0].id), ANY_VERSION, [an_event("SandboxViolation")]))
        return len(appends) - len(transaction.append(appends))
