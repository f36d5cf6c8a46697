"""Says what each role spends its time on: a run under cProfile, told by function. `[--single] FOLDER N`."""

from __future__ import annotations

import os
import pstats
import sys
from pathlib import Path

from benchmarks.produce import in_batches, one_by_one
from benchmarks.system import governed_side
from gateway.embedded.directory import DataDirectory
from interlock.errors import UsageError

TOP = 45
WAITING = ("poll", "recv", "acquire", "select", "wait", "flock", "epoll")


def main(arguments: list[str]) -> None:
    """Run N invocations through a profiled system on FOLDER and print each role's dearest functions."""
    if os.geteuid() == 0:
        raise UsageError("start it as an ordinary account: it measures as that account")
    single = "--single" in arguments
    folder, n = (argument for argument in arguments if not argument.startswith("--"))
    directory = DataDirectory.at(folder)
    with governed_side(directory, "benchmarks.profiled") as side:
        rate = side.measure(one_by_one if single else in_batches, int(n))
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
