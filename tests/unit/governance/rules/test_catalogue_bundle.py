"""Catalogues of a bundle: each is all or none by itself, and many share a transaction."""

from __future__ import annotations

import json
from typing import Any

import pytest

from governance.catalogue import add_catalogues, read_bundled, tool_stream
from interlock.errors import NotJsonError
from interlock.tier import Tier
from tests.support.court import Court


def line(catalogue: Any, *names: str, **more: Any) -> bytes:
    tools = [{"name": name, "description": "d", **more} for name in names]
    return json.dumps({"catalogue": catalogue, "tools": tools}).encode()


def test_a_line_names_its_catalogue() -> None:
    read = read_bundled(line("shop", "pay", "refund"), tier=Tier.T0)
    assert [tool.qualified_name for tool in read.tools] == ["shop/pay", "shop/refund"]
    assert read.refused == []


@pytest.mark.parametrize("catalogue", [5, "", "a/b", "-a", "x" * 200, "builtin"])
def test_a_name_that_no_catalogue_can_have_is_refused(catalogue: Any) -> None:
    [reason] = read_bundled(line(catalogue, "pay"), tier=Tier.T0).refused
    assert reason.code == "CATALOGUE_INVALID"


@pytest.mark.parametrize(
    "data", [b"[]", b'{"catalogue":"a"}', b'{"catalogue":"a","tools":[],"more":1}', b"{"]
)
def test_what_is_no_line_of_a_bundle_is_refused(data: bytes) -> None:
    with pytest.raises(NotJsonError):
        read_bundled(data)


def test_one_that_is_refused_takes_no_other_with_it() -> None:
    ledger = Court().ledger
    first = [read_bundled(line(name, "pay"), tier=Tier.T0).tools for name in ("a", "b")]
    assert [added.names for added in add_catalogues(ledger, first, added_by="x")] == [["a/pay"], ["b/pay"]]
    other = [
        read_bundled(line("a", "pay", "new", version="2"), tier=Tier.T0).tools,
        read_bundled(line("b", "pay", "new"), tier=Tier.T0).tools,
    ]
    refused, added = add_catalogues(ledger, other, added_by="x")
    assert (refused.names, [reason.code for reason in refused.refused]) == ([], ["DUPLICATE_TOOL"])
    assert (added.names, added.replaced) == (["b/new"], [])
    with ledger.read() as view:
        epoch = view.epoch()
        assert tool_stream(other[0][1]) not in view.heads([tool_stream(other[0][1])])
    [replaced, same] = add_catalogues(ledger, other, added_by="x", replace=True)
    assert (replaced.names, replaced.replaced, same.names) == (["a/pay", "a/new"], ["a/pay"], [])
    add_catalogues(ledger, other, added_by="x")
    with ledger.read() as view:
        assert view.epoch() == epoch + 1
