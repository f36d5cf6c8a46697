"""A directory keeps to the ledger that it was made with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.embedded.directory import DataDirectory
from gateway.embedded.ledger_note import note_server, server_of
from gateway.embedded.server import is_same_server, without_password
from interlock.errors import OursToFixError

SERVER = "postgresql://us:secret@db:5432/ledger?sslmode=require"


def on_server(folder: Path, url: str = SERVER) -> DataDirectory:
    return DataDirectory.at(folder, {"INTERLOCK_LEDGER_URL": url})


def test_without_a_setting_the_ledger_lies_in_the_directory(tmp_path: Path) -> None:
    directory = DataDirectory.at(tmp_path)
    assert server_of(directory) == ""
    note_server(directory, "i-1")
    assert not directory.ledger_note.exists()


def test_what_it_was_made_with_is_remembered_without_the_password(tmp_path: Path) -> None:
    note_server(on_server(tmp_path), "i-1")

    assert server_of(DataDirectory.at(tmp_path)) == without_password(SERVER)
    assert "secret" not in on_server(tmp_path).ledger_note.read_text()
    assert server_of(on_server(tmp_path)) == SERVER


@pytest.mark.parametrize("url", ["postgresql://us@db:5432/other", "postgresql://us@elsewhere/ledger"])
def test_another_server_is_refused(tmp_path: Path, url: str) -> None:
    note_server(on_server(tmp_path), "i-1")
    with pytest.raises(OursToFixError, match="INTERLOCK_LEDGER_URL"):
        server_of(on_server(tmp_path, url))


def test_another_ledger_behind_the_same_address_is_refused(tmp_path: Path) -> None:
    note_server(on_server(tmp_path), "i-1")
    note_server(on_server(tmp_path), "i-1")
    with pytest.raises(OursToFixError, match="belongs to i-1"):
        note_server(on_server(tmp_path), "i-2")


def test_a_directory_with_a_ledger_of_its_own_takes_no_server(tmp_path: Path) -> None:
    directory = on_server(tmp_path)
    directory.ledger.touch()
    with pytest.raises(OursToFixError, match="the directory itself") as caught:
        server_of(directory)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://us:secret@db/x", "sqlite:///x", "nonsense", "postgres://db/x"])
def test_an_address_of_no_known_kind_is_refused_without_saying_its_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(OursToFixError) as caught:
        on_server(tmp_path, url)
    assert caught.value.code == "CONFIG_INVALID"
    assert "secret" not in str(caught.value)


def test_addresses_that_differ_in_a_password_only_are_the_same() -> None:
    assert is_same_server(SERVER, SERVER.replace("secret", "other"))
    assert is_same_server("postgresql://us@/d?host=/s&password=x", "postgresql://us@/d?host=/s")
    assert not is_same_server(SERVER, replace_user(SERVER))


def replace_user(url: str) -> str:
    return url.replace("us:", "them:")


def test_a_directory_does_not_show_a_password(tmp_path: Path) -> None:
    directory = on_server(tmp_path)
    assert "secret" not in repr(directory)
    assert "secret" not in directory.ledger_url
    assert replace(directory, ledger_server="").ledger_url.startswith("sqlite:")
