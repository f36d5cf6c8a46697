"""The long proof of rolling restarts: every role is replaced again and again under load, on both stores.

`PROVE_RESTARTS` times a store. No part of `./run test`.
"""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.support.crashing import settle
from tests.support.proof import Outline, proving
from tests.support.renewing import loaded_system, uncertain
from tests.support.store import LEDGER_URL, store_settings

PROOF = Outline(
    name="restarts",
    says="Every role is replaced under load, and nothing is lost, doubled or uncertain.",
    count="PROVE_RESTARTS",
    usual=5,
    minutes=1.0,
    minutes_each=0.6,
)
QUIET_SECONDS = 180.0


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_every_role_replaced_again_and_again_under_load(store: str, seed: int) -> None:
    rng = random.Random(seed)
    with (
        proving(PROOF, seed) as course,
        store_settings(store) as settings,
        loaded_system(rng, ledger_url=settings.get(LEDGER_URL, "")) as load,
    ):
        replaced, gaps = Counter[str](), list[int]()
        for _ in range(course.wanted):
            began = time.monotonic()
            steps = load.restart()
            assert {step["state"] for step in steps} == {"done"}
            replaced.update(step["role"] for step in steps)
            gaps.append(load.pulse.gap_ms(began))
            course.say(f"{store}: {len(steps)} replaced, longest time without an answer {gaps[-1]} ms")
        load.closing.set()
        findings = settle(load.system, load.traffic, QUIET_SECONDS)
        course.figure("store", store)
        course.figure("calls", len(load.traffic.calls))
        course.figure("replaced", replaced.total())
        course.figure("gap_ms_max", max(gaps))
        course.figure("findings", len(findings))
        assert findings == []
        assert uncertain(load.system.directory) == set()
        assert load.system.faulted_pids() == set()
        assert min(replaced.values()) >= course.wanted
