"""One signature over a whole batch: each digest carries its Merkle path, so it can be checked alone.

Pure but for the signer it is handed. Never reads a key from disk.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from interlock.word import Word


class Purpose(StrEnum):
    """What a signature is for; one made for one purpose is worthless for another."""

    PERMIT = "interlock.permit.v1"
    RECEIPT = "interlock.receipt.v1"
    ANCHOR = "interlock.anchor.v1"
    VOTE = "interlock.vote.v1"
    PROPOSAL = "interlock.proposal.v1"
    CANCELLATION = "interlock.cancellation.v1"


class Signer(Protocol):
    """A private key in use."""

    @property
    def kid(self) -> str:
        """Name of the key."""
        ...

    def sign(self, data: bytes) -> bytes:
        """The 64-byte Ed25519 signature of the data."""
        ...


class KeyRing(Protocol):
    """The public keys one trusts."""

    def verify(self, kid: str, data: bytes, signature: bytes) -> bool:
        """Whether the named key is known and signed exactly this."""
        ...


class Seal(Word):
    """A signature over a batch's root, with one member's way up to it."""

    kid: str
    root: str
    """Hex SHA-256 of the Merkle root."""
    path: tuple[str, ...] = ()
    """Siblings from leaf to root: `l` or `r` (the side the sibling stands on), then hex."""
    signature: str
    """Hex Ed25519 signature over purpose and root."""


def _leaf(digest: str) -> bytes:
    return hashlib.sha256(b"\x00" + bytes.fromhex(digest)).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _signed_bytes(purpose: Purpose, root: str) -> bytes:
    return purpose.value.encode() + b"\n" + root.encode()


def merkle(digests: Sequence[str]) -> tuple[str, list[tuple[str, ...]]]:
    """The root (hex) over hex digests, and each one's path. An odd node is carried up as it is."""
    levels = [[_leaf(digest) for digest in digests]]
    while len(levels[-1]) > 1:
        levels.append(_upper(levels[-1]))
    paths: list[tuple[str, ...]] = [()]
    for level in reversed(levels[:-1]):
        # Downwards, so that two members' common way is made once, above both.
        steps = _steps(level)
        paths = [(step, *paths[place >> 1]) for place, step in enumerate(steps)] + paths[len(steps) >> 1 :]
    return levels[-1][0].hex(), paths


def _upper(level: Sequence[bytes]) -> list[bytes]:
    pairs = zip(level[::2], level[1::2], strict=False)
    upper = [_node(left, right) for left, right in pairs]
    return [*upper, level[-1]] if len(level) % 2 else upper


def _steps(level: Sequence[bytes]) -> list[str]:
    """The step from each node that has a sibling; an odd one at the end has none."""
    named = [node.hex() for node in level[: len(level) & ~1]]
    return [
        "r" + named[place + 1] if place % 2 == 0 else "l" + named[place - 1] for place in range(len(named))
    ]


def climb(digest: str, path: Sequence[str]) -> str:
    """The root that this digest and path lead to; raises ValueError on a malformed path."""
    node = _leaf(digest)
    for step in path:
        node = _above(node, step)
    return node.hex()


def _above(node: bytes, step: str) -> bytes:
    """The node that this one and its sibling have above them."""
    sibling = bytes.fromhex(step[1:])
    if step[0] not in "lr" or len(sibling) != 32:
        raise ValueError("a path step is a side and 32 bytes of hex")
    return _node(sibling, node) if step[0] == "l" else _node(node, sibling)


PATH_MAX = 64
"""A batch that needed a longer way would have more members than there can be; each step kept is a copy."""


class Climber:
    """Climbs as `climb` does, and remembers where ways lead that many members of a batch have in common.

    A pure function's memory: what is found there is what climbing would find. Not safe for threads.
    """

    def __init__(self, ways_max: int = 2_048) -> None:
        self._ways_max = ways_max
        self._ways: dict[tuple[bytes, tuple[str, ...]], bytes] = {}

    def climb(self, digest: str, path: tuple[str, ...]) -> str:
        """The root that this digest and path lead to; raises ValueError on a malformed path."""
        if len(path) > PATH_MAX:
            return climb(digest, path)
        node, left = _leaf(digest), path
        walked: list[tuple[bytes, tuple[str, ...]]] = []
        while left:
            # Nobody shares a leaf, so the first step is never remembered.
            node, left = _above(node, left[0]), left[1:]
            known = self._ways.get((node, left))
            if known is not None:
                node = known
                break
            walked.append((node, left))
        self._remember(walked, node)
        return node.hex()

    def _remember(self, walked: list[tuple[bytes, tuple[str, ...]]], root: bytes) -> None:
        if len(self._ways) + len(walked) > self._ways_max:
            self._ways.clear()
        self._ways.update((way, root) for way in walked)


def seal_batch(signer: Signer, purpose: Purpose, digests: Sequence[str]) -> list[Seal]:
    """Seal every digest with one signature, in the order given."""
    if not digests:
        return []
    root, paths = merkle(digests)
    signature = signer.sign(_signed_bytes(purpose, root)).hex()
    return [Seal.of_checked(kid=signer.kid, root=root, path=path, signature=signature) for path in paths]


class SealVerifier:
    """Checks seals for one purpose; remembers roots found good, so a batch costs one verification."""

    def __init__(self, keys: KeyRing, purpose: Purpose, roots_max: int = 256) -> None:
        self._keys = keys
        self._purpose = purpose
        self._roots_max = roots_max
        self._good: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._climber = Climber()

    def verify(self, digest: str, seal: Seal) -> bool:
        """Whether a trusted key sealed exactly this digest for this purpose."""
        try:
            if self._climber.climb(digest, seal.path) != seal.root:
                return False
        except (ValueError, IndexError):
            return False
        return self._root_is_good(seal)

    def _root_is_good(self, seal: Seal) -> bool:
        known = (seal.kid, seal.root, seal.signature)
        if known in self._good:
            self._good.move_to_end(known)
            return True
        try:
            signature = bytes.fromhex(seal.signature)
        except ValueError:
            return False
        if not self._keys.verify(seal.kid, _signed_bytes(self._purpose, seal.root), signature):
            return False
        self._good[known] = None
        if len(self._good) > self._roots_max:
            self._good.popitem(last=False)
        return True
