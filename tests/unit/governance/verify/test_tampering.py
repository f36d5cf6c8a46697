"""Whatever is done to the rows, `verify` names the event it was done to."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from governance.adapters.sqlite_ledger.reading import event_from
from governance.adapters.sqlite_ledger.schema import EVENT_COLUMNS
from governance.chain import genesis, link
from governance.verification.fault import FaultCode
from governance.verify import Report
from interlock.canonical import sha256_hex
from interlock.clock import ManualClock
from tests.support.installation import Installation, named
from tests.unit.governance.verify.conftest import Change

Checked = Callable[..., Report]


def test_a_genuine_ledger_is_found_whole(
    installation: Installation, checked: Checked, tmp_path: Path
) -> None:
    seq = installation.anchor_head(tmp_path / "anchors.jsonl")
    report = checked(tmp_path / "anchors.jsonl")
    assert (report.ok, report.events, report.seq, report.anchored, report.faults) == (True, 18, seq, seq, [])
    assert report.to_json()["ok"] is True


def test_an_empty_ledger_is_found_whole(ledger: SqliteLedger, clock: ManualClock) -> None:
    report = Installation(ledger, clock).verify(ledger.records())
    assert (report.ok, report.events, report.head) == (True, 0, genesis(ledger.info.incarnation))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("kind", "'evidence'"), ("stream", "'i-9'"), ("version", "9"), ("type", "'DecisionDeferred'"),
        ("format", "2"), ("at_us", "at_us + 1"), ("cause", "'event:1'"), ("actor", "'somebody'"),
        ("tenant", "'other'"), ("session", "'s-9'"), ("moves_state", "0"), ("payload", "x'7b7d'"),
        ("hash", "zeroblob(32)"),
    ],
)  # fmt: skip
def test_an_edited_row_is_named(change: Change, checked: Checked, column: str, value: str) -> None:
    change(f"UPDATE tool_event SET {column} = {value} WHERE ord = 7")
    assert (7, FaultCode.ROW_CHANGED) in named(checked())
    assert not {seq for seq, code in named(checked()) if code is FaultCode.ROW_CHANGED} - {7}


def test_an_edited_digest_is_named(change: Change, checked: Checked) -> None:
    change("UPDATE tool_event SET payload_sha = zeroblob(32) WHERE ord = 7")
    assert named(checked()) == {(7, FaultCode.PAYLOAD_CHANGED)}


def test_a_row_that_is_no_event_any_more_is_named_and_blinds_nothing_else(
    change: Change, checked: Checked
) -> None:
    change(
        "UPDATE tool_event SET hash = x'00' WHERE ord = 7", "UPDATE tool_event SET actor = 'x' WHERE ord = 17"
    )
    assert {(7, FaultCode.ROW_UNREADABLE), (17, FaultCode.ROW_CHANGED)} <= named(checked())


def test_a_deleted_row_is_named(change: Change, checked: Checked) -> None:
    change("DELETE FROM tool_event WHERE ord = 11")
    beside = {(10, FaultCode.HEAD_DIFFERS), (10, FaultCode.DUE_STRAY)}
    assert {(11, FaultCode.ROW_MISSING), *beside} == named(checked())


def test_a_deleted_row_in_the_middle_of_a_stream_is_named_and_what_follows_it_too(
    change: Change, checked: Checked
) -> None:
    change("DELETE FROM tool_event WHERE ord BETWEEN 6 AND 7")
    assert {(6, FaultCode.ROW_MISSING), (8, FaultCode.VERSION_GAP)} == named(checked())


def test_an_inserted_row_is_named_though_the_later_ones_were_moved(change: Change, checked: Checked) -> None:
    change(
        "UPDATE tool_event SET ord = -ord WHERE ord >= 12",
        "UPDATE tool_event SET ord = 1 - ord WHERE ord < 0",
        """INSERT INTO tool_event SELECT 12, 'evidence', 'i-1', 1, 'SandboxViolation', 1, at_us, cause, actor,
            tenant, session, 0, payload, payload_sha, hash FROM tool_event WHERE ord = 11""",
    )
    assert {(12, FaultCode.ROW_CHANGED), (12, FaultCode.STREAM_HEADLESS)} <= named(checked())
    assert min(fault.seq or 99 for fault in checked().faults) == 12


def test_a_row_at_a_number_that_is_never_given_out_is_named(change: Change, checked: Checked) -> None:
    change("""INSERT INTO tool_event SELECT -3, 'evidence', 'i-1', 1, type, format, at_us, cause, actor,
        tenant, session, 0, payload, payload_sha, hash FROM tool_event WHERE ord = 11""")
    assert (-3, FaultCode.ROW_INSERTED) in named(checked())


def test_two_rows_that_changed_places_are_both_named(change: Change, checked: Checked) -> None:
    change(
        "UPDATE tool_event SET ord = 0 WHERE ord = 9",
        "UPDATE tool_event SET ord = 9 WHERE ord = 15",
        "UPDATE tool_event SET ord = 15 WHERE ord = 0",
    )
    assert {(9, FaultCode.ROW_CHANGED), (15, FaultCode.ROW_CHANGED)} <= named(checked())


def test_a_cut_tail_is_named(change: Change, checked: Checked) -> None:
    change("DELETE FROM tool_event WHERE ord > 16")
    assert (17, FaultCode.TAIL_CUT) in named(checked())


def test_a_cut_tail_is_named_by_its_heads_though_its_numbers_were_given_back(
    change: Change, checked: Checked
) -> None:
    change("DELETE FROM tool_event WHERE ord > 16", "UPDATE sqlite_sequence SET seq = 16")
    assert (16, FaultCode.HEAD_DIFFERS) in named(checked())


def test_a_cut_tail_is_named_by_an_anchor_though_heads_were_cut_with_it(
    installation: Installation, change: Change, checked: Checked, tmp_path: Path
) -> None:
    installation.anchor_head(tmp_path / "anchors.jsonl")
    cut_last_invocation(change)
    assert named(checked()) == set()
    assert named(checked(tmp_path / "anchors.jsonl")) == {(15, FaultCode.ANCHOR_AHEAD)}


def cut_last_invocation(change: Change) -> None:
    change(
        "DELETE FROM tool_event WHERE ord > 14",
        "UPDATE sqlite_sequence SET seq = 14",
        "DELETE FROM head WHERE id = 'i-5'",
    )


def test_a_cut_ledger_that_goes_on_keeps_its_gap(
    installation: Installation, change: Change, checked: Checked
) -> None:
    change("DELETE FROM tool_event WHERE ord > 14", "DELETE FROM head WHERE id = 'i-5'")
    installation.request("i-6")
    assert named(checked()) == {(15, FaultCode.ROW_MISSING)}


def rehash(path: Path, incarnation: str, first: int) -> None:
    """All hashes from `first` on, as whoever holds the file can compute them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows = connection.execute(
            f"SELECT {', '.join(EVENT_COLUMNS)} FROM tool_event ORDER BY ord"
        ).fetchall()
        previous = genesis(incarnation)
        for event in map(event_from, rows):
            digest = sha256_hex(event.payload)
            hash_ = link(previous, event, digest) if event.seq >= first else event.hash
            change = "UPDATE tool_event SET hash = ?, payload_sha = ? WHERE ord = ?"
            connection.execute(change, (bytes.fromhex(hash_), bytes.fromhex(digest), event.seq))
            previous = hash_


def test_hashes_that_were_all_made_anew_are_named_by_the_first_event_no_anchor_agrees_with(
    installation: Installation,
    ledger: SqliteLedger,
    change: Change,
    checked: Checked,
    path: Path,
    tmp_path: Path,
) -> None:
    anchors = tmp_path / "anchors.jsonl"
    installation.anchor_head(anchors)
    installation.run("i-6")
    installation.request("i-7")
    installation.anchor_head(anchors)
    change("UPDATE tool_event SET actor = 'somebody' WHERE ord = 21")
    rehash(path, ledger.info.incarnation, 21)
    assert named(checked()) == set()
    assert named(checked(anchors)) == {(19, FaultCode.ANCHOR_MISMATCH)}
    assert checked(anchors).anchored == 18


def test_a_receipt_edited_with_its_digest_and_all_hashes_is_named(
    ledger: SqliteLedger, change: Change, checked: Checked, path: Path
) -> None:
    change("UPDATE tool_event SET payload = CAST(replace(payload, 'hello', 'HELLO') AS BLOB) WHERE ord = 8")
    rehash(path, ledger.info.incarnation, 8)
    assert named(checked()) == {(8, FaultCode.RECEIPT_CHANGED)}


def test_yesterday_put_back_is_named_by_an_anchor_kept_elsewhere(
    installation: Installation, ledger: SqliteLedger, clock: ManualClock, path: Path, tmp_path: Path
) -> None:
    inside, elsewhere = tmp_path / "anchors.jsonl", tmp_path / "elsewhere.jsonl"
    installation.anchor_head(inside, elsewhere)
    ledger.close()
    yesterday = tmp_path / "yesterday"
    yesterday.mkdir()
    shutil.copy(path, yesterday)
    shutil.copy(inside, yesterday)
    today = SqliteLedger.open(path, clock)
    installation.ledger = today
    installation.run("i-6")
    installation.anchor_head(inside, elsewhere)
    today.close()
    put_back = SqliteLedger.open(yesterday / "ledger.db", clock)
    installation.ledger = put_back
    assert named(installation.verify(put_back.records(), yesterday / "anchors.jsonl")) == set()
    assert named(installation.verify(put_back.records(), elsewhere)) == {(19, FaultCode.ANCHOR_AHEAD)}
    installation.run("i-7")
    installation.run("i-8")
    assert named(installation.verify(put_back.records(), elsewhere)) == {(19, FaultCode.ANCHOR_MISMATCH)}
    put_back.close()


def test_another_incarnation_is_named(
    change: Change, installation: Installation, clock: ManualClock, path: Path
) -> None:
    change("UPDATE meta SET value = 'another' WHERE name = 'incarnation'")
    reopened = SqliteLedger.open(path, clock)
    found = named(installation.verify(reopened.records()))
    reopened.close()
    assert found == {(1, FaultCode.ROW_CHANGED), (1, FaultCode.INCARNATION)}


@pytest.mark.parametrize(
    ("columns", "seq"),
    [
        ("phase = 'done'", 14), ("version = 2", 14), ("attempt = 2", 14), ("nonce = 'n-9'", 14),
        ("session = 's-9'", 14), ("stage = 'g-9'", 14), ("accepted_seq = 1", 14), ("client = 'other'", 14),
        ("pool = 'shell'", 14), ("action_digest = 'x'", 14), ("started = 0", 14),
    ],
)  # fmt: skip
def test_an_edited_head_is_named_by_its_last_event(
    change: Change, checked: Checked, columns: str, seq: int
) -> None:
    change(f"UPDATE head SET {columns} WHERE id = 'i-4'")
    assert named(checked()) == {(seq, FaultCode.HEAD_DIFFERS)}


def test_a_removed_head_is_named_by_the_first_event_of_its_stream(change: Change, checked: Checked) -> None:
    change("DELETE FROM head WHERE id = 'i-3'", "DELETE FROM due WHERE id = 'i-3'")
    assert named(checked()) == {(10, FaultCode.STREAM_HEADLESS)}


def test_a_head_of_nothing_is_named(change: Change, checked: Checked, installation: Installation) -> None:
    change("UPDATE head SET id = 'i-9', version = 0 WHERE id = 'i-2'", "DELETE FROM due WHERE id = 'i-2'")
    assert named(checked()) == {(None, FaultCode.HEAD_DIFFERS), (9, FaultCode.STREAM_HEADLESS)}


@pytest.mark.parametrize(("waiting", "seq"), [("i-2", 9), ("i-3", 11), ("i-4", 14)])
def test_a_removed_due_row_is_named(change: Change, checked: Checked, waiting: str, seq: int) -> None:
    change(f"DELETE FROM due WHERE id = '{waiting}'")
    assert named(checked()) == {(seq, FaultCode.DUE_MISSING)}


def test_a_due_row_of_what_is_final_and_of_nothing_is_named(change: Change, checked: Checked) -> None:
    change("INSERT INTO due VALUES ('invocation', 'i-1', 'lease', 1), ('invocation', 'i-9', 'lease', 1)")
    assert named(checked()) == {(8, FaultCode.DUE_STRAY), (None, FaultCode.DUE_STRAY)}


def test_time_that_goes_back_within_a_stream_is_named(
    ledger: SqliteLedger, change: Change, checked: Checked, path: Path
) -> None:
    change("UPDATE tool_event SET at_us = at_us - 1 WHERE ord = 6")
    rehash(path, ledger.info.incarnation, 6)
    assert named(checked()) == {(6, FaultCode.TIME_BACK)}


NO_TEXT = "CAST(x'ff' AS TEXT)"


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (f"UPDATE head SET client = {NO_TEXT} WHERE id = 'i-4'", FaultCode.HEAD_DIFFERS),
        (f"UPDATE head SET id = {NO_TEXT} WHERE id = 'i-4'", FaultCode.STREAM_HEADLESS),
        (f"UPDATE head SET kind = {NO_TEXT} WHERE id = 'i-4'", FaultCode.STREAM_HEADLESS),
        (f"UPDATE tool_event SET actor = {NO_TEXT} WHERE ord = 14", FaultCode.ROW_CHANGED),
        (f"UPDATE tool_event SET stream = {NO_TEXT} WHERE ord = 14", FaultCode.ROW_CHANGED),
        (f"UPDATE due SET what = {NO_TEXT} WHERE id = 'i-4'", FaultCode.DUE_STRAY),
        (f"UPDATE due SET id = {NO_TEXT} WHERE id = 'i-4'", FaultCode.DUE_STRAY),
        (f"INSERT INTO denial VALUES ({NO_TEXT}, {NO_TEXT})", FaultCode.DENIAL_STRAY),
        (f"INSERT INTO contract VALUES ({NO_TEXT}, x'ff')", FaultCode.CONTRACT_CHANGED),
        (f"INSERT INTO idempotency VALUES ({NO_TEXT}, 'a', 'b', 'c', 'd')", FaultCode.KEY_STRAY),
    ],
)
def test_what_is_no_text_is_named_and_blinds_nothing_else(
    change: Change, checked: Checked, statement: str, code: FaultCode
) -> None:
    change(statement, "UPDATE head SET priority = 0 WHERE id = 'i-1'")
    found = named(checked())
    assert (8, FaultCode.HEAD_DIFFERS) in found
    assert code in {code for _, code in found - {(8, FaultCode.HEAD_DIFFERS)}}
