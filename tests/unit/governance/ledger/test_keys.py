"""The keys of an installation are made once and whole, and read only while nobody else can."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from governance.keys import KeyPurpose, KeyUnavailableError, make_keys, read_key, read_public
from interlock.adapters.ed25519 import Ed25519KeyRing, Ed25519Signer, kid_of


def public_of(private: bytes) -> str:
    return Ed25519Signer.from_bytes(private).public_hex


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    make_keys(made, public_of)
    return made


def test_every_key_is_made_and_fits_its_public_part(folder: Path) -> None:
    public = read_public(folder)
    assert set(public) == {KeyPurpose.GOVERNANCE, KeyPurpose.POOL, KeyPurpose.ANCHOR}
    assert {purpose: public_of(read_key(folder, purpose)) for purpose in public} == dict(public)
    assert len({read_key(folder, purpose) for purpose in KeyPurpose}) == 4


def test_folder_and_files_are_for_their_owner_only(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_keys_that_exist_are_never_made_anew(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    make_keys(folder, public_of)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_an_empty_folder_is_filled_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    make_keys(folder, public_of)
    assert len(read_key(folder, KeyPurpose.SEALING)) == 32
    assert [file.name for file in tmp_path.iterdir()] == ["keys"]


def test_starters_that_race_end_with_one_set(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    start = threading.Barrier(8)
    seen: list[bytes] = []

    def begin() -> None:
        start.wait(timeout=10)
        make_keys(folder, public_of)
        seen.append(read_key(folder, KeyPurpose.POOL))

    starters = [threading.Thread(target=begin) for _ in range(8)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(timeout=30)
    assert len(seen) == 8
    assert len(set(seen)) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["keys"]


def test_a_missing_key_is_named_and_not_made(folder: Path) -> None:
    (folder / "pool.key").unlink()
    make_keys(folder, public_of)
    with pytest.raises(KeyUnavailableError, match=r"pool\.key"):
        read_key(folder, KeyPurpose.POOL)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_can_reach_is_refused(folder: Path, mode: int) -> None:
    (folder / "governance.key").chmod(mode)
    with pytest.raises(KeyUnavailableError, match="open to others"):
        read_key(folder, KeyPurpose.GOVERNANCE)


def test_keys_in_a_folder_that_others_can_enter_are_refused(folder: Path) -> None:
    folder.chmod(0o750)
    with pytest.raises(KeyUnavailableError, match="open to others"):
        read_key(folder, KeyPurpose.GOVERNANCE)


@pytest.mark.parametrize("text", ["", "ab" * 31, "zz" * 32, "ab" * 33])
def test_a_malformed_key_is_refused_and_not_shown(folder: Path, text: str) -> None:
    (folder / "anchor.key").write_text(text, encoding="ascii")
    with pytest.raises(KeyUnavailableError) as caught:
        read_key(folder, KeyPurpose.ANCHOR)
    assert not text or text not in str(caught.value)


def test_a_link_is_no_key(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (folder / "pool.key").rename(elsewhere)
    (folder / "pool.key").symlink_to(elsewhere)
    with pytest.raises(KeyUnavailableError):
        read_key(folder, KeyPurpose.POOL)


@pytest.mark.parametrize("text", ["", "[]", '{"pool":"ab"}'])
def test_a_malformed_list_of_public_keys_is_refused(folder: Path, text: str) -> None:
    (folder / "public.json").write_text(text, encoding="ascii")
    with pytest.raises(KeyUnavailableError):
        read_public(folder)


# --- signatures --------------------------------------------------------------------------------------


def test_a_signature_verifies_under_its_key_and_no_other() -> None:
    signer, other = Ed25519Signer.generate(), Ed25519Signer.generate()
    ring = Ed25519KeyRing({signer.kid: signer.public_hex, other.kid: other.public_hex})
    signature = signer.sign(b"data")
    assert ring.verify(signer.kid, b"data", signature)
    assert not ring.verify(other.kid, b"data", signature)
    assert not ring.verify("unknown", b"data", signature)
    assert not ring.verify(signer.kid, b"other", signature)
    assert not ring.verify(signer.kid, b"data", signature[:-1])


def test_a_signer_is_the_same_from_its_private_bytes_and_shows_them_to_nobody() -> None:
    signer = Ed25519Signer.generate()
    again = Ed25519Signer.from_bytes(signer.private_bytes())
    assert (again.kid, again.public_hex) == (signer.kid, signer.public_hex)
    assert signer.kid == kid_of(signer.public_hex)
    assert signer.private_bytes().hex() not in repr(signer)


def test_a_key_under_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="not the name"):
        Ed25519KeyRing({"0" * 16: Ed25519Signer.generate().public_hex})
