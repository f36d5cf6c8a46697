"""A pool process for tests: `python -m tests.integration.pool.serving DATA POOL BROKER_URL`."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from workers.pool import PlainStop, run_pool


def main(data: str, pool: str, broker_url: str) -> int:
    """Be the pool; READY is said on standard output."""
    logging.basicConfig(level=logging.INFO)
    return run_pool(
        Path(data),
        pool,
        broker_url,
        dict(os.environ),
        ready=lambda: print("READY", flush=True),
        stop=PlainStop(),
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
