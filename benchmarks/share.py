"""Says what each role spends its time on: a run under cProfile, told by function. `[--single] FOLDER N`.

`INTERLOCK_LEDGER_URL` names another store than SQLite, as for the product.
"""

from __future__ import annotations

import os
import pstats
import sys
from pathlib import Path

from benchmarks.plan import SQLITE, Plan
from benchmarks.store import LEDGER_URL, Store
from benchmarks.system import governed_side
from gateway.embedded.directory import DataDirectory
from interlock.errors import UsageError

TOP = 45
WAITING = ("poll", "recv", "acquire", "select", "wait", "flock", "epoll")


def main(arguments: list[str]) -> None:
    """Run N invocations through a profiled system on FOLDER and print each role's dearest functions."""
    if os.geteuid() == 0:
        raise UsageError("start it as an ordinary account: it measures as that account")
    way = "single" if "--single" in arguments else "batch"
    folder, n = (argument for argument in arguments if not argument.startswith("--"))
    directory = DataDirectory.at(folder)
    store = Store(os.environ.get(LEDGER_URL, SQLITE).partition(":")[0], os.environ.get(LEDGER_URL))
    with governed_side(directory, store, "benchmarks.profiled") as side:
        rate = side.measure(way, Plan.of(int(n)))
    print(f"{rate.per_s:.0f}/s under the profiler")
    for path in sorted((directory.path / "profile").glob("*.pstats")):
        _tell(path, int(n))


def _tell(path: Path, n: int) -> None:
    stats = pstats.Stats(str(path))
    print(f"\n== {path.stem}: microseconds an invocation, own and with what it calls")
    rows: list[tuple[float, float, int, str]] = [
        (own, total, calls, f"{Path(file).parent.name}/{Path(file).name}:{line} {name}")
        for (file, line, name), (_, calls, own, total, _) in stats.stats.items()  # type: ignore[attr-defined]
        if not any(word in name for word in WAITING)
    ]
    for order in (0, 1):
        print(f"-- by {'own' if order == 0 else 'total'}")
        for own, total, calls, name in sorted(rows, key=lambda row: row[order], reverse=True)[:TOP]:
            print(f"{own * 1e6 / n:8.1f} {total * 1e6 / n:8.1f} {calls / n:8.2f}  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
