"""The app for Celery's own command line: `celery -A gateway.celery_app worker -Q interlock.pool.NAME`.

The data directory is INTERLOCK_DATA; its ledger and broker are those that it or the settings name. Nothing is
read, connected or forked before the app is asked for, and a pool is composed only when a worker is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.embedded.directory import DataDirectory
    from workers.adapters.celery_pool import PoolApp
    from workers.pool import PoolProcess

    app: PoolApp


def __getattr__(name: str) -> object:
    if name == "app":
        made = app_from(os.environ)
        # Celery asks more than once, and must get the same one.
        globals()["app"] = made
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def app_from(environment: Mapping[str, str]) -> PoolApp:
    """The app of the data directory that the environment names. Raises KeyError without one."""
    from gateway.embedded.directory import DataDirectory
    from workers.adapters.celery_pool import make_app

    directory = DataDirectory.at(environment["INTERLOCK_DATA"], environment)
    return make_app(directory.broker_url, lambda pool: _open_pool(directory, pool, dict(environment)))


def _open_pool(directory: DataDirectory, pool: str, environment: Mapping[str, str]) -> PoolProcess:
    from gateway.parts import Parts
    from gateway.roles import pool_process
    from interlock.tier import Pool
    from workers.pool import PlainStop

    parts = Parts.of(directory, environment)
    return pool_process(parts, Pool(pool), environment, tell_ready=lambda: None, stop=PlainStop())
