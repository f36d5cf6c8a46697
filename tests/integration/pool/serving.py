"""A pool process for tests: `python -m tests.integration.pool.serving DATA POOL`."""

from __future__ import annotations

import logging
import os
import sys

from gateway.embedded.directory import DataDirectory
from gateway.parts import Parts
from gateway.roles import pool_process
from interlock.tier import Pool
from workers import pool as product
from workers.pool import PlainStop

END_RUNNING = "INTERLOCK_TEST_END_RUNNING_SECONDS"


def main(data: str, pool: str) -> int:
    """Be the pool; READY is said on standard output."""
    logging.basicConfig(level=logging.INFO)
    product.END_RUNNING_SECONDS = float(os.environ.get(END_RUNNING, product.END_RUNNING_SECONDS))
    parts = Parts.of(DataDirectory.at(data, os.environ), os.environ)
    process = pool_process(
        parts,
        Pool(pool),
        os.environ,
        tell_ready=lambda: print("READY", flush=True),
        stop=PlainStop(),
    )
    from workers.adapters.celery_pool import make_app, serve_pool

    app = make_app(parts.directory.broker_url, lambda _name: process)
    return serve_pool(app, pool, f"interlock-{pool}@test")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
