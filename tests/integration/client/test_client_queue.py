"""A client's own queue in a whole system: served as soon as it is registered, its own over every crash."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from gateway.client import connect
from gateway.examination import check_queues
from gateway.store import open_ledger
from governance.principal import LOCAL_OPERATOR, register
from interlock.adapters.celery_wire import encode_task
from interlock.canonical import JsonObject, canonical
from interlock.event import PrincipalRegistered
from interlock.identifier import new_id
from interlock.proposal import PROPOSE_TASK, client_queue
from tests.support.live import Live, running
from tests.support.wait import until


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Two governors, one of which is killed with the first proposals in its hands."""
    folder = tmp_path_factory.mktemp("live")
    faults = {
        "INTERLOCK_TESTING": "1",
        "INTERLOCK_FAULT": "propose.before_commit:1:kill",
        "INTERLOCK_FAULT_LOG": str(folder / "faults"),
    }
    with running(folder, INTERLOCK_REPLICAS="governor=2", **faults) as system:
        yield system


def registered(live: Live, name: str) -> None:
    ledger = open_ledger(live.directory)
    payload = PrincipalRegistered(role="client", person=name, tenant=f"{name}-tenant")
    register(ledger, name, payload, by=LOCAL_OPERATOR)
    ledger.close()


def put(live: Live, client: str) -> str:
    identifier = new_id()
    said: JsonObject = {"id": identifier, "tool": "echo", "arguments": {"value": client}, "session": "s"}
    queue = client_queue(client)
    live.put(queue, encode_task(PROPOSE_TASK, canonical(said), queue=queue, task_id=identifier))
    return identifier


def said_of_queues(live: Live) -> tuple[str, str]:
    """What `doctor` says of the clients' queues."""
    check = check_queues(live.directory, live.ledger)
    return check.state, check.detail


def whose(live: Live, identifier: str) -> tuple[str, str]:
    first = live.events(identifier)[0]
    body = first.body()
    return str(body["client"]), str(body["tenant"])


def test_a_new_clients_proposals_are_its_own_though_the_governor_that_took_them_is_killed(
    live: Live, tmp_path: Path
) -> None:
    for name in ("acme", "rival"):
        registered(live, name)
    ids = {put(live, name): name for name in ("acme", "rival") for _ in range(5)}
    for identifier in ids:
        assert live.rest(identifier) == "done"
    assert (live.directory.path.parent / "faults").read_text().startswith("propose.before_commit 1 kill")
    for identifier, name in ids.items():
        assert whose(live, identifier) == (name, f"{name}-tenant")


def test_a_plain_celery_producer_and_the_client_of_a_name_are_served(live: Live) -> None:
    registered(live, "shop")
    app = Celery("p", broker=live.directory.broker_url, set_as_current=False)
    task_id = new_id()
    sent_at = time.monotonic()
    kwargs = {"tool": "echo", "arguments": {"value": 1}}
    app.send_task(
        PROPOSE_TASK, kwargs=kwargs, queue=client_queue("shop"), task_id=task_id, ignore_result=True
    )
    app.close()
    assert live.rest(task_id) == "done"
    assert whose(live, task_id) == ("shop", "shop-tenant")
    assert time.monotonic() - sent_at < 10
    with connect(live.directory.path, client="shop") as client:
        submitted = client.submit("echo", {"value": 2}, session="own")
        assert client.wait(submitted.invocation_id, 20).status == "COMPLETED"
    assert whose(live, submitted.invocation_id)[0] == "shop"


def test_who_is_not_registered_is_not_taken_from(live: Live) -> None:
    stranger = put(live, "stranger")
    known = put(live, "acme")
    assert live.rest(known) == "done"
    assert live.phase(stranger) is None
    assert said_of_queues(live) == (
        "degraded",
        "waits where nobody takes it: 'interlock.propose.stranger' (1)",
    )
    registered(live, "stranger")
    until(lambda: live.phase(stranger) is not None, 20, "the newcomer's proposal was judged")
    assert said_of_queues(live)[0] == "ok"
