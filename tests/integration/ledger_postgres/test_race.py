"""Many that write at once: one wins at one version, and what spans invocations is judged one by one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from governance.adapters.postgres_ledger import PostgresLedger
from governance.append import ANY_VERSION
from governance.ledger import Append, Due, KeyName, KeyOwner, head_with
from interlock.errors import ConflictError
from interlock.event import evidence_stream, invocation_stream
from tests.integration.ledger_postgres.conftest import Plain
from tests.support.ledger import a_head, an_append, an_event, head_of, write
from tests.support.source import ROOT

RACERS = 24
RACE = """
import os, sys
from governance.adapters.postgres_ledger import PostgresLedger
from interlock.clock import SystemClock
from tests.support.ledger import a_head, an_append, an_event, write

def race(url, number, gate):
    ledger = PostgresLedger.open(url, SystemClock())
    os.read(gate, 1)
    head = a_head("i-1", "running", nonce=str(number), started=True)
    claim = an_append("i-1", 1, events=[an_event("ToolExecutionStarted")] * 2, head=head)
    lost = write(ledger, claim)
    ledger.close()
    return 0 if lost else 1

gate, go = os.pipe()
children = {}
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        os.close(go)
        try:
            os._exit(race(sys.argv[1], number, gate))
        finally:
            os._exit(2)
    children[child] = number
os.close(go)
for _ in range(len(children)):
    pid, status = os.wait()
    if status:
        print(os.waitstatus_to_exitcode(status), children[pid], flush=True)
"""


@pytest.mark.timeout(60)
def test_of_many_processes_at_one_version_one_wins(ledger: PostgresLedger, postgres_url: str) -> None:
    write(ledger, an_append("i-1"))
    command = [sys.executable, "-W", "ignore", "-c", RACE, postgres_url, str(RACERS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    [said] = done.stdout.splitlines()
    outcome, winner = said.split()
    assert outcome == "1", done.stderr
    head = head_of(ledger, "i-1")
    assert (head.version, head.nonce) == (3, winner)
    with ledger.read() as view:
        assert len(view.events([invocation_stream("i-1")])[invocation_stream("i-1")]) == 3


def at_once(work: Sequence[Callable[[], None]]) -> list[Exception]:
    """Run all in threads of their own that go together; what they raised."""
    start, raised = threading.Barrier(len(work)), list[Exception]()

    def run(one: Callable[[], None]) -> None:
        start.wait(timeout=30)
        try:
            one()
        except Exception as error:  # noqa: BLE001 - whatever it was, the test looks at it
            raised.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return raised


def test_a_budget_of_one_is_used_once_under_one_key(ledger: PostgresLedger) -> None:
    def spend(number: int) -> None:
        with ledger.write(["session:s-1"]) as transaction:
            if not transaction.heads_of("invocation", session="s-1", limit=9):
                transaction.append([an_append(f"i-{number}")])

    assert at_once([partial(spend, number) for number in range(8)]) == []
    with ledger.read() as view:
        assert sum(view.counts().values()) == 1


def test_batches_in_opposite_order_meet_without_a_deadlock(ledger: PostgresLedger) -> None:
    ids = [f"i-{number:02}" for number in range(40)]
    won = list[str]()

    def append(some: Sequence[str], expected: int) -> None:
        lost = write(ledger, *(an_append(one, expected) for one in some))
        won.extend(one for one in some if invocation_stream(one) not in lost)

    for version in range(4):
        both = [partial(append, ids, version), partial(append, ids[::-1], version)]
        assert at_once(both) == []
    assert sorted(won) == sorted(ids * 4)
    assert {head_of(ledger, one).version for one in ids} == {4}


def test_keys_in_opposite_order_meet_without_a_deadlock(ledger: PostgresLedger) -> None:
    keys = [f"stage:{number}" for number in range(30)]

    def hold(names: Sequence[str]) -> None:
        for _ in range(20):
            with ledger.write(names) as transaction:
                transaction.epoch()

    assert at_once([lambda: hold(keys), lambda: hold(keys[::-1]), lambda: hold(keys[10:])]) == []


def test_evidence_of_many_at_once_loses_nothing(ledger: PostgresLedger) -> None:
    stream = evidence_stream("i-1")

    def note() -> None:
        for _ in range(10):
            noted = Append(stream, ANY_VERSION, [an_event("SandboxViolation")] * 2)
            assert write(ledger, noted) == set()

    assert at_once([note] * 6) == []
    with ledger.read() as view:
        assert [event.version for event in view.events([stream])[stream]] == list(range(1, 121))


def test_a_switch_of_the_epoch_waits_for_whoever_judges_under_it(ledger: PostgresLedger) -> None:
    judged, switched = threading.Event(), threading.Event()
    seen = list[int]()

    def switch() -> None:
        judged.wait(timeout=30)
        with ledger.write(control=True) as transaction:
            seen.append(transaction.raise_epoch())
        switched.set()

    thread = threading.Thread(target=switch)
    thread.start()
    with ledger.write(["stage:a"]) as transaction:
        seen.append(transaction.epoch())
        judged.set()
        assert not switched.wait(timeout=0.3)
        transaction.append([an_append("i-1", head=a_head("i-1", epoch=transaction.epoch()))])
    assert switched.wait(timeout=30)
    thread.join(timeout=30)
    assert seen == [1, 2]
    with ledger.write(["stage:a"]) as transaction:
        assert transaction.epoch() == 2


def test_those_who_share_the_epoch_do_not_wait_for_each_other(ledger: PostgresLedger) -> None:
    done = threading.Event()

    def judge() -> None:
        with ledger.write(["stage:b"]) as transaction:
            transaction.epoch()
        done.set()

    with ledger.write(["stage:a"]):
        thread = threading.Thread(target=judge)
        thread.start()
        assert done.wait(timeout=30)
    thread.join(timeout=30)


def test_what_one_is_publishing_another_does_not_publish(ledger: PostgresLedger) -> None:
    for number in range(4):
        write(ledger, an_append(f"i-{number}", head=a_head(f"i-{number}", "queued", ready=True)))
    taken = list[str]()

    def release() -> None:
        with ledger.write(["stage:b"]) as other:
            taken.extend(head.id for head in other.next_ready("pure", 9))

    with ledger.write(["stage:a"]) as transaction:
        first = [head.id for head in transaction.next_ready("pure", 2)]
        transaction.mark_published(first, [Due("invocation", one, "release", 5) for one in first])
        assert at_once([release]) == []
    assert (first, taken) == (["i-0", "i-1"], ["i-2", "i-3"])
    with ledger.write() as transaction:
        assert [head.id for head in transaction.next_ready("pure", 9)] == ["i-2", "i-3"]


def test_a_key_that_two_bind_at_once_has_one_owner(ledger: PostgresLedger) -> None:
    name, bound = KeyName("t", "c", "k"), list[str]()

    def bind(number: int) -> None:
        with ledger.write() as transaction:
            transaction.append([an_append(f"i-{number}")])
            transaction.bind_key(name, KeyOwner(f"i-{number}", "r"))
        bound.append(f"i-{number}")

    raised = at_once([partial(bind, number) for number in range(6)])
    assert [type(error) for error in raised] == [ConflictError] * 5
    with ledger.read() as view:
        assert view.key_owners([name])[name].invocation_id == bound[0]
        assert sum(view.counts().values()) == 1


def test_a_writer_takes_no_transaction_id_before_it_appends(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    write(ledger, an_append("i-1", head=a_head("i-1", "queued", ready=True)))
    with ledger.write(["stage:a"]) as transaction:
        head = transaction.heads([invocation_stream("i-1")])[invocation_stream("i-1")]
        transaction.stage_lines([head.stage_key])
        transaction.epoch()
        running = "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
        assert beside().execute(running).fetchone() == (0,)
        transaction.append([an_append("i-1", 1, head=head_with(head, phase="running"))])


def test_a_writer_that_is_killed_in_its_turn_frees_its_keys(
    ledger: PostgresLedger, postgres_url: str
) -> None:
    script = """
import signal, sys
from governance.adapters.postgres_ledger import PostgresLedger
from interlock.clock import SystemClock
from tests.support.ledger import an_append
with PostgresLedger.open(sys.argv[1], SystemClock()).write(["stage:a"]) as transaction:
    transaction.append([an_append("i-9")])
    print("writing", flush=True)
    signal.pause()
"""
    command = [sys.executable, "-W", "ignore", "-c", script, postgres_url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "writing\n"
        child.kill()
    with ledger.write(["stage:a"]) as transaction:
        assert transaction.append([an_append("i-1")]) == set()
    with ledger.read() as view:
        assert view.counts() == {"deciding": 1}
