"""What doctor makes of what it reads."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gateway.embedded.directory import DataDirectory
from gateway.examination import (
    DURABLE,
    DURABLE_SERVER,
    check_backlog,
    check_claimers,
    check_keys,
    check_numbers,
    check_projection,
    judge_server,
    judge_settings,
)
from governance.adapters.postgres_ledger.horizon import HIGH_SECONDS, Horizon
from governance.ledger import Boot
from tests.support.court import Court


def test_settings_that_hold_are_shown_as_read_back() -> None:
    check = judge_settings({**DURABLE, "cache_size": "-16000"})
    assert check.state == "ok"
    assert "synchronous=2" in check.detail


@pytest.mark.parametrize("name", sorted(DURABLE))
def test_a_setting_that_does_not_hold_is_a_failure(name: str) -> None:
    check = judge_settings({**DURABLE, name: "other"})
    assert check.state == "failed"
    assert name in check.remedy


def test_a_backlog_that_nobody_moves_is_noticed() -> None:
    court = Court()
    court.say("pay", {"amount": 1})
    with court.ledger.read() as view:
        assert [check.state for check in check_backlog(view)] == ["ok"]
    court.clock.advance(8 * 3_600 + 120)
    with court.ledger.read() as view:
        [check] = check_backlog(view)
    assert check.state == "degraded"
    assert "approval_expiry" in check.detail


def test_a_claimer_that_ended_without_a_word_is_named(tmp_path: Path) -> None:
    court, here = Court(), f"{socket.gethostname()}:boot"
    with court.ledger.write() as transaction:
        transaction.beat(Boot("b-1", "pool.fs", here, 4711, 1, 0, False))
        transaction.beat(Boot("b-2", "pool.pure", here, 4712, 2, 0, True))
        transaction.beat(Boot("b-3", "pool.pure", "another-host:boot", 4713, 2, 0, False))
    with court.ledger.read() as view:
        check = check_claimers(view, DataDirectory.at(tmp_path))
    assert (check.state, check.detail) == ("degraded", "ended without a word: pool.fs (4711)")


def test_a_server_must_not_have_durability_switched_off() -> None:
    on = dict.fromkeys(DURABLE_SERVER, "on")
    assert judge_server(on).state == "ok"
    assert judge_server(on | {"synchronous_commit": "remote_apply"}).state == "ok"
    for name in DURABLE_SERVER:
        assert judge_server(on | {name: "off"}).state == "failed"


def test_a_session_that_cannot_be_folded_is_a_failure() -> None:
    assert check_projection(True, [], 5).state == "ok"
    assert check_projection(True, ["s"], 5).state == "failed"
    assert check_projection(False, [], 5).state == "off"


def test_keys_are_private(tmp_path: Path) -> None:
    directory = DataDirectory.at(tmp_path)
    assert check_keys(directory).state == "off"
    directory.keys.mkdir(mode=0o700)
    key = directory.keys / "pool.key"
    key.touch(mode=0o600)
    assert check_keys(directory).state == "ok"
    directory.keys.chmod(0o755)
    assert check_keys(directory).state == "failed"


def test_events_that_wait_for_their_numbers_are_noticed_with_what_holds_them() -> None:
    assert check_numbers(None) == []
    assert [check.state for check in check_numbers(Horizon(HIGH_SECONDS, True))] == ["ok"]
    held, unknown, nobody = (
        check_numbers(Horizon(12.4, is_held, pid))[0]
        for is_held, pid in ((True, 4711), (True, None), (False, None))
    )
    assert {check.state for check in (held, unknown, nobody)} == {"degraded"}
    assert "12 s" in held.detail
    assert "pg_terminate_backend(4711)" in held.remedy
    assert "pg_prepared_xacts" in unknown.remedy
    assert "scheduler" in nobody.remedy
