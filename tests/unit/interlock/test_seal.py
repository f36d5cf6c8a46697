"""One signature over a batch: every member's way leads to its root, remembered or not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.adapters.ed25519 import Ed25519KeyRing, Ed25519Signer
from interlock.permit import PermitTerms, terms_digest
from interlock.seal import PATH_MAX, Climber, Purpose, SealVerifier, climb, merkle, seal_batch


def digests(count: int) -> list[str]:
    return [hashlib.sha256(b"%d" % number).hexdigest() for number in range(count)]


@given(st.integers(1, 70), st.integers(1, 40))
def test_every_way_leads_to_the_root_also_where_it_is_remembered(count: int, ways_max: int) -> None:
    members = digests(count)
    root, paths = merkle(members)
    climber = Climber(ways_max)
    for _ in range(2):
        for digest, path in zip(members, paths, strict=True):
            assert climb(digest, path) == climber.climb(digest, path) == root


STEPS = st.sampled_from(["l", "r", "x"]).flatmap(
    lambda side: st.sampled_from(["ab" * 32, "cd" * 32, "ab" * 31, "zz" * 32, ""]).map(
        lambda hex_: side + hex_
    )
)


def found(climbing: object, digest: str, path: Sequence[str]) -> str:
    try:
        return str(climbing(digest, path))  # type: ignore[operator]  # one of the two
    except (ValueError, IndexError) as error:
        return type(error).__name__


@given(st.lists(st.tuples(st.sampled_from(digests(3)), st.lists(STEPS, max_size=6).map(tuple)), max_size=30))
def test_whatever_is_climbed_leads_where_it_would_without_a_memory(
    ways: list[tuple[str, tuple[str, ...]]],
) -> None:
    climber = Climber(8)
    for digest, path in ways:
        assert found(climber.climb, digest, path) == found(climb, digest, path)


def test_a_way_longer_than_any_batch_is_climbed_without_being_kept() -> None:
    climber, path = Climber(), ("l" + "ab" * 32,) * (PATH_MAX + 1)
    assert climber.climb(digests(1)[0], path) == climb(digests(1)[0], path)
    assert climber._ways == {}


def test_a_member_with_another_members_way_or_a_changed_one_is_not_sealed() -> None:
    signer = Ed25519Signer.generate()
    verifier = SealVerifier(Ed25519KeyRing({signer.kid: signer.public_hex}), Purpose.PERMIT)
    members = digests(5)
    seals = seal_batch(signer, Purpose.PERMIT, members)
    for _ in range(2):
        assert all(map(verifier.verify, members, seals))
        assert not any(map(verifier.verify, members[1:] + members[:1], seals))
        for seal in seals:
            swapped = (*seal.path[:-1], ("l" if seal.path[-1][0] == "r" else "r") + seal.path[-1][1:])
            assert not verifier.verify(members[0], seal.model_copy(update={"path": swapped}))
            assert not verifier.verify(members[0], seal.model_copy(update={"path": seal.path[:-1]}))


@given(
    digest=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    numbers=st.lists(st.integers(-(2**53) + 1, 2**53 - 1), min_size=4, max_size=4),
)
def test_the_digest_of_terms_is_that_of_their_fields(digest: str, numbers: list[int]) -> None:
    names = ("epoch", "valid_from_us", "valid_until_us", "attempts")
    terms = PermitTerms(action_digest=digest, invocation_id="i", **dict(zip(names, numbers, strict=True)))
    assert terms.digest == terms_digest(terms.to_json())


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_small_batches_are_sealed(count: int) -> None:
    signer = Ed25519Signer.generate()
    assert len(seal_batch(signer, Purpose.RECEIPT, digests(count))) == count
