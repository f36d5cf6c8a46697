"""The app of the pools: its settings hold or nothing starts, and importing it does nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from gateway.celery_app import app_from
from workers.adapters.celery_pool import PINNED, PoolApp, SettingChangedError, make_app, require_pinned
from workers.pool import egress_from
from workers.supervisor.profile import EgressEntry


class Unserved:
    """A pool that nobody should have opened."""

    slots = 1

    def begin(self) -> None:
        raise AssertionError

    def ready(self) -> None:
        raise AssertionError

    def serve(self, invocation_ids: Sequence[str]) -> None:
        raise AssertionError(invocation_ids)

    def stop(self) -> None:
        raise AssertionError

    def close(self) -> int:
        raise AssertionError


def an_app() -> PoolApp:
    return make_app("redis+socket:///nowhere/vk.sock?virtual_host=0", lambda _pool: Unserved())


def test_every_pinned_setting_holds() -> None:
    require_pinned(an_app())


@pytest.mark.parametrize("name", list(PINNED))
def test_a_setting_that_was_changed_stops_the_worker(name: str) -> None:
    app = an_app()
    app.conf[name] = "something else"
    with pytest.raises(SettingChangedError, match=name):
        require_pinned(app)


def test_the_only_task_has_an_explicit_name() -> None:
    tasks = {name for name in an_app().tasks if not name.startswith("celery.")}
    assert tasks == {"interlock.run"}


def test_a_worker_is_for_exactly_one_pool() -> None:
    with pytest.raises(ValueError, match="exactly one pool"):
        an_app().Worker(queues="interlock.pool.pure,interlock.pool.fs")


def test_importing_the_app_module_imports_no_celery() -> None:
    script = "import sys, gateway.celery_app; print('celery' in sys.modules, 'workers.pool' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "False False\n"


def test_the_app_needs_a_data_directory() -> None:
    with pytest.raises(KeyError, match="INTERLOCK_DATA"):
        app_from({})


def test_the_broker_is_that_of_the_data_directory() -> None:
    app = app_from({"INTERLOCK_DATA": "/nowhere/data"})
    assert app.conf.broker_url == "redis+socket:///nowhere/data/broker/vk.sock?virtual_host=0"


def test_hosts_are_listed_with_the_networks_they_may_be_in() -> None:
    listed = egress_from({"INTERLOCK_EGRESS": "example.org:443, box:8080@10.0.0.0/8+127.0.0.1"})
    assert listed == (
        EgressEntry("example.org", 443),
        EgressEntry("box", 8080, ("10.0.0.0/8", "127.0.0.1")),
    )
    with pytest.raises(ValueError, match="no host:port"):
        egress_from({"INTERLOCK_EGRESS": "example.org"})
