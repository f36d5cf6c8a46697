"""Every statement finds its rows by an index, whatever the statistics say: its cost does not grow."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer
from governance.append import ANY_VERSION
from governance.ledger import Append, Boot, Due, KeyName, KeyOwner, LedgerTransaction, StageKey
from interlock.event import evidence_stream, invocation_stream
from tests.support.ledger import a_head, an_append, an_event, write

# Of these only a handful of rows exist, or all of them are asked for.
SMALL = ("control", "sequencer", "boot")


def use_everything(transaction: LedgerTransaction) -> None:
    streams, digests = [invocation_stream(f"i-{number}") for number in range(3)], ["a", "b"]
    transaction.epoch()
    transaction.heads([*streams, invocation_stream("i-9")])
    for phase in (None, "queued", "done"):
        for session in (None, "s-1"):
            transaction.heads_of("invocation", phase=phase, session=session, limit=5)
    transaction.heads_of("session", limit=5)
    transaction.events(streams)
    transaction.range(0, 9)
    transaction.range(0, 900)
    transaction.session_events("s-1", limit=9)
    transaction.last_seq()
    transaction.key_owners([KeyName("t", "c", "k")])
    transaction.stage_lines([StageKey("default", "s-1", "g-1")])
    transaction.twins(digests)
    transaction.denials(digests)
    transaction.contracts(digests)
    transaction.published_unclaimed()
    transaction.next_ready("pure", 9)
    transaction.due(5, 9)
    transaction.due_after(5, 9)
    transaction.due_of(streams)
    transaction.counts()
    transaction.append([an_append("i-0", 1), an_append("i-1", 1, due=None), an_append("i-new")])
    transaction.append([Append(evidence_stream("i-0"), ANY_VERSION, [an_event("SandboxViolation")])])
    transaction.mark_published(["i-2"], [Due("invocation", "i-2", "release", 5)])
    transaction.mark_ready(["i-2"])
    transaction.set_due(Due("invocation", "i-2", "release", 6))
    transaction.due_of(streams)  # what falls due is written when it is asked for, else at the end
    transaction.bind_key(KeyName("t", "c", "k"), KeyOwner("i-0", "r"))
    transaction.deny("a", "i-0")
    transaction.put_contract("a", b"c")
    transaction.beat(Boot("b", "pool", "h", 1, 1, 1, False))


class Recorded:
    """A connection or cursor that remembers what it was asked."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.asked: list[tuple[str, Any]] = []

    def execute(self, sql: str, values: Any = (), **options: Any) -> Any:
        if sql.lstrip().startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")):
            self.asked.append((sql, values))
        return self._connection.execute(sql, values, **options)


class Scan(NamedTuple):
    """One place where a plan reads a table."""

    way: str
    table: str
    found_by: str
    """What is looked up in the index; empty where the index is read from end to end."""
    is_limited: bool
    """Whether something above stops it early, or it reads no more than one row."""


# These are read to the end on purpose, by what asks for all of them or goes in their order.
WHOLE = (
    "SELECT coalesce(max(seq)",
    "SELECT pool, count(*)",
    "SELECT phase, count(*)",
    "SELECT count(*) FROM tool_event",
)


def scans(plan: dict[str, Any], *, is_limited: bool = False) -> list[Scan]:
    limited = plan["Node Type"] == "Limit" or (is_limited and plan["Node Type"] != "Sort")
    found = [scan for child in plan.get("Plans", ()) for scan in scans(child, is_limited=limited)]
    if "Relation Name" in plan and plan["Node Type"].endswith("Scan"):
        how = str(plan.get("Index Cond", plan.get("Recheck Cond", plan.get("TID Cond", ""))))
        found.append(Scan(plan["Node Type"], plan["Relation Name"], how, is_limited))
    return found


@pytest.mark.timeout(60)
@pytest.mark.parametrize("known", ["nothing", "that the tables are small"])
def test_every_row_is_looked_up_whatever_is_known_of_the_tables(ledger: PostgresLedger, known: str) -> None:
    for number in range(3):
        write(ledger, an_append(f"i-{number}", head=a_head(f"i-{number}", "queued", ready=True)))
    PostgresSequencer(ledger, "a").sequence()
    asked = statements_of(ledger)
    assert len(asked) > 35
    if known != "nothing":
        with ledger.database.single() as connection:
            connection.execute("VACUUM ANALYZE", prepare=False)
    whole = [
        (scan, sql)
        for sql, values in asked.items()
        for scan in plan_of(ledger, sql, values)
        if reads_all(scan) and not sql.startswith(WHOLE)
    ]
    assert whole == []


def statements_of(ledger: PostgresLedger) -> dict[str, Any]:
    """Every statement, with values that it was asked with."""
    with ledger.write() as transaction:
        recorded: Any = Recorded(transaction._cursor)
        transaction._cursor = recorded
        use_everything(transaction)
    sequencer = PostgresSequencer(ledger, "a")
    with ledger.database.single() as connection:
        watched: Any = Recorded(connection)
        leader = sequencer._try_to_lead(watched)
        assert leader is not None
        sequencer._step(watched, leader)
    return dict([*recorded.asked, *watched.asked])


def reads_all(scan: Scan) -> bool:
    """Also where all that is looked up is that it is an invocation, which nearly everything is."""
    if scan.table in SMALL:
        return False
    if scan.way == "Seq Scan":
        return True
    return not scan.is_limited and scan.found_by in ("", "(kind = 'invocation'::text)")


def plan_of(ledger: PostgresLedger, sql: str, values: Any) -> list[Scan]:
    with ledger.database.single() as connection:
        [[[plan]]] = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}", values, prepare=False).fetchall()
    return scans(plan["Plan"])
