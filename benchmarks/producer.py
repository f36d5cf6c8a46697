"""One producer as a process of its own: it gets its order, says that it is ready, waits for the word, sends.

So whoever measures never produces, and as many can send at once as are wanted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from benchmarks.checkout import environment
from interlock.errors import OursToFixError


def main() -> None:
    """The order on standard input, then any further line as the word; CPU seconds on standard output."""
    from benchmarks.order import Order
    from benchmarks.produce import WAYS

    order = Order.from_line(sys.stdin.readline())
    submissions = list(order.submissions())
    with WAYS[order.way](order.broker_url) as send:
        _tell({"ready": True})
        if not sys.stdin.readline():
            return  # whoever ordered it is gone
        before = time.process_time()
        send(submissions)
        _tell({"cpu_seconds": time.process_time() - before})


def _tell(value: dict[str, object]) -> None:
    print(json.dumps(value), flush=True)


@dataclass(slots=True)
class Crew:
    """Producers that wait for the word. The same programs serve peers, which have producers of their own."""

    members: Sequence[subprocess.Popen[str]]

    def begin(self) -> None:
        """Give the word to all."""
        for member in self.members:
            _pipe(member.stdin).write("go\n")
            _pipe(member.stdin).flush()

    def finish(self) -> float:
        """Wait until all have sent everything; the CPU seconds they took for it together."""
        return sum(float(_heard(member)["cpu_seconds"]) for member in self.members)


@contextmanager
def crew(
    commands: Sequence[Sequence[str]], orders: Sequence[str], settings: Mapping[str, str] | None = None
) -> Iterator[Crew]:
    """Start one producer for each command, with its order; all of them are ready inside, and gone after."""
    env = environment() if settings is None else dict(settings)
    members = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd="/")
        for command in commands
    ]
    try:
        for member, order in zip(members, orders, strict=True):
            _pipe(member.stdin).write(order + "\n")
            _pipe(member.stdin).flush()
        for member in members:
            _heard(member)
        yield Crew(members)
    finally:
        for member in members:
            _end(member)


def _end(member: subprocess.Popen[str]) -> None:
    try:
        member.communicate(timeout=10)
    except (subprocess.TimeoutExpired, BrokenPipeError):
        member.kill()
        member.communicate()


def own_commands(count: int) -> list[list[str]]:
    """How so many of our own producers are started."""
    return [[sys.executable, "-m", "benchmarks.producer"]] * count


def _heard(member: subprocess.Popen[str]) -> dict[str, float]:
    line = _pipe(member.stdout).readline()
    if not line:
        raise OursToFixError("NOT_RUNNING", f"a producer ended with {member.wait()}")
    value: dict[str, float] = json.loads(line)
    return value


def _pipe(found: IO[str] | None) -> IO[str]:
    assert found is not None
    return found


if __name__ == "__main__":
    main()
