"""A process that takes one batch, says so, and waits to be killed. Arguments: url, boot, queue, limit."""

from __future__ import annotations

import sys
import threading

from governance.adapters.redis_intake import RedisIntake
from interlock.adapters.redis_client import connect


def main(url: str, boot: str, queue: str, limit: str) -> None:
    intake = RedisIntake(
        connect(url), connect(url, blocking=True), boot=boot, queues=(queue,), look_seconds=0
    )
    batches = intake.takeover(lambda other: other != boot) or [intake.take(int(limit), 10)]
    print(len(batches[0].items), batches[0].items[0].deliveries, flush=True)
    threading.Event().wait(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
