"""The same random steps on every ledger end in the same answers, event for event and head for head."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from governance.append import ANY_VERSION
from governance.ledger import (
    Append,
    Boot,
    Due,
    Head,
    KeyName,
    KeyOwner,
    Ledger,
    LedgerTransaction,
    LedgerView,
    StageKey,
    head_with,
)
from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.errors import ConflictError
from interlock.event import NewEvent, Stream, evidence_stream, invocation_stream
from tests.conformance.ledger.conftest import OpenLedger

IDS = [f"i-{number:02}" for number in range(12)]
PHASES = (
    "deciding", "awaiting_approval", "queued", "running", "retry_wait", "reconciliation_required", "done",
)  # fmt: skip
KEYS = [KeyName("t", client, key) for client in ("a", "b") for key in ("k-1", "k-2")]
STREAMS = [
    *map(invocation_stream, IDS), *map(evidence_stream, IDS),
    Stream("session", "s-0"), Stream("session", "s-1"),
]  # fmt: skip
STEPS = 300
STEPS_SERVED = 150


class Steps:
    """One random history, told to any ledger."""

    def __init__(self, rng: random.Random, *, numbers_later: bool = False) -> None:
        self._rng = rng
        self._numbers_later = numbers_later
        """Whether one of them numbers its events after the commit."""

    def head(self, stream: Stream) -> Head:
        """What may change is random; where it belongs follows from its id."""
        rng = self._rng
        number = int(stream.id[2:])
        session = f"s-{number % 2}"
        if stream.kind != "invocation":
            return Head(*stream, phase=rng.choice(PHASES), session=session, data="{}")
        return Head(
            *stream, tenant="tu"[number % 3 == 0], session=session, phase=rng.choice(PHASES), client="a",
            stage=f"g-{number % 4}", pool=rng.choice(["pure", "fs"]), priority=rng.randrange(3),
            ready=rng.random() < 0.5, published_us=rng.choice([0, 0, 5]), attempt=rng.randrange(3),
            nonce=rng.choice(["", "n"]), action_digest=f"a-{rng.randrange(4)}",
            guards_twins=rng.random() < 0.5, started=rng.random() < 0.5, cancel=rng.random() < 0.2,
        )  # fmt: skip

    def an_append(self, stream: Stream, version: int) -> Append:
        rng = self._rng
        events = [
            NewEvent(rng.choice(["A", "B"]), rng.randbytes(9), "c", "w", rng.random() < 0.5)
            for _ in range(rng.randint(1, 3))
        ]
        expected = rng.choice([version, version, version, version + 1, 0, ANY_VERSION])
        head = self.head(stream) if version == 0 or rng.random() < 0.8 else None
        due = Due(*stream, "lease", rng.randrange(100)) if rng.random() < 0.6 else None
        return Append(stream, expected, events, head, due)

    def step(self, ledgers: tuple[Ledger, Ledger]) -> None:
        """The same transaction on each; it fails on all of them or on none."""
        rng = self._rng
        with ledgers[0].read() as view:
            versions = {stream: head.version for stream, head in view.heads(STREAMS).items()}
        chosen = rng.sample(STREAMS, rng.randint(1, 4))
        appends = [self.an_append(stream, versions.get(stream, 0)) for stream in chosen]
        some = rng.sample(IDS, 2)
        what = rng.randrange(8)
        key, owner = rng.choice(KEYS), KeyOwner(some[0], "r")
        is_abandoned = rng.random() < 0.1

        def act(transaction: LedgerTransaction) -> object:
            lost = transaction.append(appends)
            match what:
                case 0:
                    transaction.mark_published(some, [Due("invocation", some[0], "release", 3)])
                case 1:
                    transaction.mark_ready(some)
                case 2:
                    transaction.bind_key(key, owner)
                case 3:
                    transaction.deny(f"a-{len(lost)}", some[0])
                case 4:
                    transaction.raise_epoch()
                case 5:
                    transaction.beat(Boot(some[0], "pool", "h", 1, what, 5, is_abandoned))
                case 6:
                    transaction.append([replace_version(append, transaction) for append in appends])
            return [("lost", lost), *answers(transaction)]

        first, other = (attempt(ledger, act, is_abandoned) for ledger in ledgers)
        if self._numbers_later:
            first, other = without_numbers(first), without_numbers(other)
        assert other == first, differences(first, other)


class Abandoned(Exception):  # noqa: N818 - no error: the test changes its mind
    """The transaction is given up at its end."""


def replace_version(append: Append, transaction: LedgerTransaction) -> Append:
    """The same append once more, at the version that stands within the transaction."""
    found = transaction.heads([append.stream]).get(append.stream)
    head = None if append.head is None else head_with(append.head, phase="queued", ready=True)
    return append._replace(expected=0 if found is None else found.version, head=head)


def attempt(ledger: Ledger, act: Any, is_abandoned: bool) -> object:
    try:
        with ledger.write() as transaction:
            outcome = act(transaction)
            if is_abandoned:
                raise Abandoned
            return outcome
    except (ConflictError, Abandoned) as error:
        return type(error)


def answers(view: LedgerView) -> list[tuple[str, object]]:
    """Everything that can be asked, but for hashes, which hang on each ledger's own beginning."""
    digests = [f"a-{number}" for number in range(4)]
    stages = [StageKey(t, s, g) for t in ("t", "u") for s in ("s-0", "s-1") for g in ("g-0", "g-1", "g-2")]
    heads = [
        (f"heads_of {kind} {phase} {session}", view.heads_of(kind, phase=phase, session=session, limit=9))
        for kind in ("invocation", "session", "evidence")
        for phase in (None, "queued", "done", "new")
        for session in (None, "s-0")
    ]
    return [
        ("range", [event._replace(hash="") for event in view.range(0, 10_000)]),
        ("heads", view.heads(STREAMS)),
        ("epoch", view.epoch()),
        ("last_seq", view.last_seq()),
        ("counts", view.counts()),
        ("boots", view.boots()),
        ("due", view.due(50, 7)),
        ("due_of", view.due_of(STREAMS)),
        ("key_owners", view.key_owners(KEYS)),
        ("denials", view.denials(digests)),
        ("twins", view.twins(digests)),
        ("published_unclaimed", view.published_unclaimed()),
        ("stage_lines", view.stage_lines(stages)),
        ("next_ready", [view.next_ready(pool, 5) for pool in ("pure", "fs")]),
        ("session_events", [e.seq for e in view.session_events("s-0", after_seq=9, limit=20)]),
        *heads,
    ]


def differences(one: object, other: object) -> str:
    """Which answers differ, and how."""
    if not isinstance(one, list) or not isinstance(other, list):
        return f"{one} against {other}"
    return "\n".join(f"{a} against {b}" for a, b in zip(one, other, strict=True) if a != b)


BY_NUMBER = ("range", "last_seq", "session_events")


def without_numbers(outcome: object) -> object:
    """What is asked within a transaction of events that have no number yet is left out; the rest is not."""
    if not isinstance(outcome, list):
        return outcome
    return [(name, answer) for name, answer in by_rank(outcome) if name not in BY_NUMBER]


def by_rank(said: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """The order of acceptance as first, second, third: which numbers it is made of is each store's own."""
    [heads] = [answer for name, answer in said if name == "heads"]
    assert isinstance(heads, dict)
    ranks = {number: rank for rank, number in enumerate(sorted({h.accepted_seq for h in heads.values()}))}

    def ranked(answer: Any) -> Any:
        if isinstance(answer, Head):
            return head_with(answer, accepted_seq=ranks[answer.accepted_seq])
        if isinstance(answer, dict):
            return {key: ranked(value) for key, value in answer.items()}
        return [ranked(value) for value in answer] if type(answer) is list else answer

    return [(name, ranked(answer)) for name, answer in said]


@pytest.mark.timeout(60)
def test_both_ledgers_agree_on_every_answer_after_every_step(tmp_path: Path, rng: random.Random) -> None:
    clock = ManualClock()
    stored = SqliteLedger.open(tmp_path / "ledger.db", clock, create=True)
    steps = Steps(rng)
    ledgers = InMemoryLedger(clock), stored
    for _ in range(STEPS):
        clock.advance(rng.choice([-1, 0, 1, 5]))
        steps.step(ledgers)
    stored.close()


@pytest.mark.timeout(60)
def test_one_that_numbers_its_events_later_agrees_within_every_step_and_once_they_have_their_numbers(
    open_postgres: OpenLedger, clock: ManualClock, rng: random.Random
) -> None:
    stored = open_postgres(None)
    steps = Steps(rng, numbers_later=True)
    ledgers = InMemoryLedger(clock), stored
    for _ in range(STEPS_SERVED):
        clock.advance(rng.choice([-1, 0, 1, 5]))
        steps.step(ledgers)
        first, other = (by_rank(read(ledger)) for ledger in ledgers)
        assert other == first, differences(first, other)
    stored.close()


def read(ledger: Ledger) -> list[tuple[str, object]]:
    with ledger.read() as view:
        return answers(view)
