"""Outside test data for JSON: JSONTestSuite and the vectors of RFC 8785."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest

from interlock.canonical import canonical, parse_json
from interlock.errors import NotJsonError

SUITES = Path(__file__).resolve().parents[4] / "shared" / "suites"

# Documented exceptions: a key twice, and U+0000, are JSON but refused here.
REFUSED_ALTHOUGH_JSON = {
    "y_object_duplicated_key.json": "JSON_DUPLICATE_KEY",
    "y_object_duplicated_key_and_value.json": "JSON_DUPLICATE_KEY",
    "y_object_escaped_null_in_key.json": "JSON_NUL",
    "y_string_null_escape.json": "JSON_NUL",
}
# Of what each reader may choose, these two are accepted: numbers too small for a double are 0.
ACCEPTED_CHOICES = {"i_number_double_huge_neg_exp.json", "i_number_real_underflow.json"}
TRANSFORMED = {
    "number_1.0.json": b"[1]",
    "number_1.000000000000000005.json": b"[1]",
    "number_1000000000000000.json": b"[1000000000000000]",
    "number_1e-999.json": b"[0]",
    "number_1e6.json": b"[1000000]",
    "object_key_nfc_nfd.json": '{"e\u0301":"NFD","\u00e9":"NFC"}'.encode(),
    "object_key_nfd_nfc.json": '{"e\u0301":"NFD","\u00e9":"NFC"}'.encode(),
}


def suite(name: str) -> Path:
    folder = SUITES / name
    if not folder.is_dir():
        pytest.skip(f"the outside test data is not at {folder}")
    return folder


def outcome(raw: bytes) -> str:
    try:
        canonical(parse_json(raw))
    except NotJsonError as error:
        return error.code
    return "accepted"


def test_every_parsing_file_of_jsontestsuite_is_judged_as_documented() -> None:
    files = sorted((suite("jsontestsuite") / "test_parsing").iterdir())
    assert len(files) == 318
    wrong = {}
    for file in files:
        found = outcome(file.read_bytes())
        accepted = file.name[0] == "y" or file.name in ACCEPTED_CHOICES
        expected = REFUSED_ALTHOUGH_JSON.get(file.name, "accepted" if accepted else "refused")
        if (found if found == expected else "accepted" if found == "accepted" else "refused") != expected:
            wrong[file.name] = found
    assert wrong == {}


def test_the_choices_of_jsontestsuite_are_refused_for_the_reasons_on_record() -> None:
    files = (suite("jsontestsuite") / "test_parsing").glob("i_*.json")
    assert Counter(outcome(file.read_bytes()) for file in files) == {
        "JSON_ENCODING": 14,
        "JSON_UNICODE": 10,
        "JSON_NUMBER_RANGE": 8,
        "JSON_DEPTH": 1,
        "accepted": 2,
    }


def test_transform_files_are_kept_exactly_or_refused() -> None:
    files = sorted((suite("jsontestsuite") / "test_transform").iterdir())
    assert len(files) == 22
    accepted = {}
    for file in files:
        try:
            accepted[file.name] = canonical(parse_json(file.read_bytes()))
        except NotJsonError:
            continue
    assert accepted == TRANSFORMED


@pytest.mark.parametrize("name", ["arrays", "french", "structures", "unicode", "values", "weird"])
def test_canonical_bytes_are_those_of_the_standard(name: str) -> None:
    data = suite("jcs-rfc8785") / "testdata"
    expected = (data / "output" / f"{name}.json").read_bytes()
    assert canonical(parse_json((data / "input" / f"{name}.json").read_bytes())) == expected
    assert expected == bytes.fromhex((data / "outhex" / f"{name}.txt").read_text())


def test_ten_thousand_numbers_are_written_as_the_standard_says() -> None:
    lines = (suite("jcs-rfc8785") / "es6testfile10k.txt").read_text().splitlines()
    assert len(lines) == 10_000
    for line in lines:
        bits, expected = line.split(",")
        (number,) = struct.unpack(">d", bytes.fromhex(bits.rjust(16, "0")))
        assert canonical(number).decode() == expected, line
        assert canonical([number]).decode() == f"[{expected}]", line
