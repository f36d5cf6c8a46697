"""What of root's environment survives, and which ids are taken on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.embedded.account import DEFAULT_UID, clean_environment, needed_paths, wanted_uid
from gateway.embedded.error import AccountError


def test_keeps_only_what_is_on_the_closed_list() -> None:
    cleaned = clean_environment(
        {
            "PATH": "/usr/bin",
            "LANG": "C.UTF-8",
            "LC_TIME": "C",
            "INTERLOCK_DATA": "/data",
            "PYTHONPATH": "/root/lib",
            "PYTHONSTARTUP": "/root/start",
            "LD_PRELOAD": "/root/evil.so",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "SSH_AUTH_SOCK": "/root/agent",
            "HOME": "/root",
            "USER": "root",
        },
        Path("/data/home"),
    )

    assert cleaned == {
        "PATH": "/usr/bin",
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "INTERLOCK_DATA": "/data",
        "HOME": "/data/home",
    }


def test_takes_the_usual_account_unless_told_otherwise() -> None:
    assert wanted_uid({}) == DEFAULT_UID == 23917
    assert wanted_uid({"INTERLOCK_UID": "4711"}) == 4711


@pytest.mark.parametrize("text", ["0", "root", "", "-1", "1.5", "99999999999", "²"])
def test_refuses_an_account_that_is_root_or_no_number(text: str) -> None:
    with pytest.raises(AccountError, match="INTERLOCK_UID"):
        wanted_uid({"INTERLOCK_UID": text})


def test_interpreter_and_code_are_among_the_needed_paths() -> None:
    import gateway.embedded.account as account

    needed = needed_paths()

    assert any(Path(account.__file__).is_relative_to(path) for path in needed)
    assert all(os.path.exists(path) for path in needed)
