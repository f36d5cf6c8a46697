"""What is recorded of a call that is refused for its arguments."""

from __future__ import annotations

import pytest

from interlock.canonical import canonical, sha256_hex
from interlock.identifier import new_id
from tests.support.court import Court


@pytest.fixture
def court() -> Court:
    return Court()


def test_of_a_call_that_may_show_a_secret_under_another_key_only_digest_and_size_are_kept(
    court: Court,
) -> None:
    secret = new_id()
    answer = court.say("login", {"user": "u", "pasword": secret})
    requested = court.docket(answer.invocation_id).requested
    assert (answer.code, requested.arguments, requested.sensitive) == ("SCHEMA_INVALID", None, ())
    text = canonical({"pasword": secret, "user": "u"})
    assert requested.raw == {"sha256": sha256_hex(text), "size_bytes": len(text)}
    assert requested.arguments_hash == sha256_hex(text)
    with court.ledger.read() as view:
        assert secret.encode() not in b"".join(event.payload for event in view.range(0, 1_000))


def test_of_another_refused_call_the_arguments_are_kept(court: Court) -> None:
    requested = court.docket(court.say("note", {"txt": "x"}).invocation_id).requested
    assert (requested.arguments, requested.raw) == ({"txt": "x"}, None)


def test_of_a_call_to_an_unknown_tool_only_digest_and_size_are_kept(court: Court) -> None:
    requested = court.docket(court.say("nothing", {"a": "x"}).invocation_id).requested
    assert requested.arguments is None
    assert requested.raw == {"sha256": sha256_hex(b'{"a":"x"}'), "size_bytes": 9}
