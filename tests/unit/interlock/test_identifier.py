"""Ids: made in order, read strictly."""

from __future__ import annotations

import os
import time

import pytest

from interlock.identifier import id_time_us, is_uuid7, new_id


def test_new_ids_are_uuids_of_version_7_in_order() -> None:
    ids = [new_id() for _ in range(5_000)]
    assert ids == sorted(set(ids))
    assert all(is_uuid7(one) for one in ids)


def test_an_id_carries_the_time_it_was_made() -> None:
    before = time.time_ns() // 1_000_000 * 1_000
    made = id_time_us(new_id())
    assert made is not None
    assert before <= made <= time.time_ns() // 1_000 + 1_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01A22DC3-21B0-727D-8888-7468387798F9",
        "01a22dc321b0727d88887468387798f9",
        "{01a22dc3-21b0-727d-8888-7468387798f9}",
        "urn:uuid:01a22dc3-21b0-727d-8888-7468387798f9",
        "01a22dc3-21b0-427d-8888-7468387798f9",
        "01a22dc3-21b0-727d-c888-7468387798f9",
        "01a22dc3-21b0-727d-8888-7468387798f9\n",
        "\u0660" * 36,
    ],
)
def test_any_other_text_is_no_id(text: str) -> None:
    assert not is_uuid7(text)
    assert id_time_us(text) is None


def test_a_forked_child_makes_other_ids() -> None:
    new_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_id().encode())
        os._exit(0)
    ours = {new_id() for _ in range(100)}
    os.waitpid(child, 0)
    theirs = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    assert is_uuid7(theirs)
    assert theirs not in ours
    assert theirs[24:] not in {one[24:] for one in ours}
