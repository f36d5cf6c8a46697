"""The app for Celery's own command line: `celery -A workers.celery_app worker -Q interlock.pool.NAME`.

The data directory is INTERLOCK_DATA. Nothing is read, connected or forked before the app is asked for, and a
pool is composed only when a worker is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.adapters.celery_pool import PoolApp

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
    from workers.adapters.celery_pool import make_app
    from workers.pool import open_pool

    data = Path(environment["INTERLOCK_DATA"]).absolute()
    broker_url = broker_url_of(data, environment)
    return make_app(
        broker_url, partial(open_pool, data, broker_url=broker_url, environment=dict(environment))
    )


def broker_url_of(data: Path, environment: Mapping[str, str]) -> str:
    """`INTERLOCK_BROKER_URL`, else what the running system wrote down, else the socket in the directory."""
    given = environment.get("INTERLOCK_BROKER_URL")
    if given:
        return given
    try:
        return str(json.loads((data / "ready.json").read_bytes())["broker_url"])
    except (OSError, ValueError, KeyError):
        return f"redis+socket://{data / 'broker' / 'vk.sock'}?virtual_host=0"
