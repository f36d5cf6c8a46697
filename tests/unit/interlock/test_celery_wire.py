"""Reading and writing Celery's messages, item by item; real producers are in tests/integration."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.adapters.celery_wire import (
    ITEM_SIZE_MAX,
    Envelope,
    NotAnEnvelope,
    decode_task,
    encode_task,
)
from interlock.identifier import new_id
from interlock.parse import parse_proposal
from interlock.proposal import PROPOSE_QUEUE, PROPOSE_TASK, Proposal

ID = new_id()
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def item(body: str | bytes, *, plain: bool = False, **changes: Any) -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    outer: dict[str, Any] = {
        "body": raw.decode() if plain else base64.b64encode(raw).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": PROPOSE_TASK, "id": ID, "timelimit": [None, None], "eta": None},
        "properties": {"correlation_id": ID, "reply_to": "", "delivery_tag": "t"},
    }
    if not plain:
        outer["properties"]["body_encoding"] = "base64"
    for name, value in changes.items():
        where = "headers" if name in ("eta", "expires", "group", "timelimit", "compression", "id") else None
        (outer[where] if where else outer)[name.replace("_", "-")] = value
    return json.dumps(outer).encode()


def read(raw: bytes) -> Envelope:
    envelope = decode_task(raw)
    assert isinstance(envelope, Envelope), envelope
    return envelope


def unread(raw: bytes) -> str:
    envelope = decode_task(raw)
    assert isinstance(envelope, NotAnEnvelope), envelope
    return envelope.reason.code


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3), st.booleans())
def test_what_is_written_is_read_again(kwargs: dict[str, Any], ignore: bool) -> None:
    text = json.dumps(kwargs).encode()
    raw = encode_task("t", text, queue="q", task_id=ID, reply_to="interlock.reply.x", ignore_result=ignore)
    assert decode_task(raw) == Envelope("t", ID, text, "interlock.reply.x", wants_result=not ignore)


def test_the_same_arguments_give_the_same_bytes() -> None:
    first, again = (encode_task("t", b"{}", queue="q", task_id=ID) for _ in range(2))
    assert first == again
    assert b"reply_to" not in first


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_keyword_arguments_come_out_as_the_text_they_were(plain: bool, separators: tuple[str, str]) -> None:
    text = '{"a": NaN, "a": 1, "b": "],[{\\"", "c": [[]]}'
    body = f"[[], {text}, {json.dumps(EMBED, separators=separators)}]"
    assert read(item(body, plain=plain)).kwargs_json == text.encode()
    spaced = f" [ [ ] ,\n{text}\t, {{}} ] "
    assert read(item(spaced, plain=plain)).kwargs_json == text.encode()


def test_an_element_too_many_is_never_taken_for_keyword_arguments() -> None:
    envelope = decode_task(item(f'[[], {{"id":1}}, {{"id":2}}, {json.dumps(EMBED)}]'))
    if isinstance(envelope, Envelope):
        assert not isinstance(parse_proposal(envelope.kwargs_json, task_id=ID), Proposal)
    assert unread(item('[[], {"id":1}, {}, {"chain":null}]')) == "NOT_AN_ENVELOPE"


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"eta": "2030-01-01T00:00:00Z"}, "eta"),
        ({"expires": "2030-01-01T00:00:00Z"}, "expires"),
        ({"group": "g"}, "group"),
        ({"timelimit": [10, None]}, "time_limit"),
        ({"compression": "application/x-gzip"}, "compression"),
        ({"content_type": "application/x-python-serialize"}, "serializer"),
        ({"content_encoding": "binary"}, "content-encoding"),
    ],
)
def test_an_option_that_nobody_would_honour_is_named(changes: dict[str, Any], option: str) -> None:
    envelope = read(item(json.dumps([[], {}, EMBED]), **changes))
    assert envelope.refused_options == (option,)
    reason = envelope.refusal()
    assert reason is not None
    assert reason.code == "OPTION_UNSUPPORTED"
    assert option in reason.sentence
    assert envelope.task_id == ID


@pytest.mark.parametrize(
    ("body", "option"),
    [
        ([[1], {}, EMBED], "args"),
        ([[], {}, EMBED | {"chain": [{"task": "x"}]}], "chain"),
        ([[], {}, EMBED | {"chord": {"task": "x"}}], "chord"),
        ([[], {}, EMBED | {"callbacks": [{"task": "x"}]}], "link"),
        ([[], {}, EMBED | {"errbacks": [{"task": "x"}]}], "link_error"),
    ],
)
def test_what_surrounds_the_keyword_arguments_is_looked_at(body: list[Any], option: str) -> None:
    assert read(item(json.dumps(body))).refused_options == (option,)


def test_a_pickled_body_is_never_opened() -> None:
    assert (
        read(item(b"cos\nsystem\n(S'false'\ntR.", content_type="application/x-python-serialize")).kwargs_json
        == b"{}"
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"body":"","headers":{},"properties":{}}',
        b"[" * 100_000,
        b'{"headers":{},"headers":{},"properties":{}}',
        item("[[], {}, {}]").replace(b"base64", b"base85"),
        item("[[], {}, {}]").replace(b'"body": "', b'"body": "!'),
        item("", plain=True),
        item("[[], {}]", plain=True),
        item("nonsense"),
        item(b"\xff\xff"),
        item("[" * 10_000, plain=True),
        item("[[], {}, {}]", id=""),
        item("[[], {}, {}]", id="x" * 257),
        item("[[], {}, {}]", id=7),
        item("[[], {}, {}]", id="a\nb"),
    ],
)
def test_what_is_no_envelope_is_told_apart(raw: bytes) -> None:
    assert unread(raw) == "NOT_AN_ENVELOPE"


def test_an_item_that_is_too_large_is_not_decoded() -> None:
    assert unread(b"x" * (ITEM_SIZE_MAX + 1)) == "JSON_SIZE"


def test_ten_thousand_nested_arrays_in_the_arguments_reach_the_strict_reader() -> None:
    deep = "[" * 10_000 + "]" * 10_000
    body = f'[[], {{"id":"{ID}","tool":"echo","arguments":{deep}}}, {json.dumps(EMBED)}]'
    proposal = parse_proposal(read(item(body)).kwargs_json, task_id=ID)
    assert isinstance(proposal, Proposal)
    assert proposal.arguments_fault is not None
    assert proposal.arguments_fault.code == "JSON_DEPTH"


@pytest.mark.parametrize("reply_to", ["", None, ID, PROPOSE_QUEUE, "interlock.reply." + "x" * 300, 7])
def test_a_reply_address_that_is_none_of_ours_is_passed_over(reply_to: Any) -> None:
    raw = json.loads(item("[[], {}, {}]"))
    raw["properties"]["reply_to"] = reply_to
    assert read(json.dumps(raw).encode()).reply_to is None


@given(st.binary(max_size=200))
def test_no_item_raises(raw: bytes) -> None:
    assert isinstance(decode_task(raw), NotAnEnvelope)
    decode_task(item(raw))
