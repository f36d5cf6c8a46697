"""The long proof of the outside suites: every test of every suite through the queue and the command line.

`INTERLOCK_SEED` changes nothing here: nothing is sampled. `./run test` runs the short form of it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.suites.bfcl import prove_leaderboard
from tests.suites.command import prove_commands
from tests.suites.naughty import prove_strings
from tests.suites.numbers import prove_canonical
from tests.suites.parsing import prove_parsing
from tests.suites.producer import producer
from tests.suites.schema import prove_schemas
from tests.support.live import running
from tests.support.proof import Outline, proving

PROOF = Outline(
    name="suites",
    says="Every test of the outside suites, through the queue and through the command line, as documented.",
    minutes=6.0,
)


def test_every_suite_in_full(seed: int) -> None:
    with (
        proving(PROOF, seed) as course,
        tempfile.TemporaryDirectory(prefix="q") as folder,
        running(Path(folder)) as live,
        producer(live) as one,
    ):
        course.figure("bfcl", prove_leaderboard(one, None, 0))
        course.figure("json_schema_test_suite", prove_schemas(one, None, 0))
        course.figure("jsontestsuite", prove_parsing(one, None, 0))
        course.figure("jcs_rfc8785", prove_canonical(one, None, 0))
        course.figure("naughty_strings", prove_strings(one, None, 0, Path(folder)))
        course.figure("command_line", prove_commands(one, None, 0, Path(folder)))
        done = live.command("verify", "--json", seconds=900)
        assert done.returncode == 0, done.stdout.decode()[-2_000:]
        with live.ledger.read() as view:
            course.figure("events_verified", view.last_seq())
