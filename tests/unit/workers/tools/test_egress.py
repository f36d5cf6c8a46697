"""Where http.fetch may go: the reading of URLs, the list, and the table of addresses."""

from __future__ import annotations

import ipaddress

import pytest

from workers.supervisor.profile import EgressEntry
from workers.tools.egress import Target, choose_address, entry_for, is_public, parse_url
from workers.tools.plan import Refusal

OK = EgressEntry("ok.test", 443)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://ok.test/", Target("http", "ok.test", 80, "/")),
        ("https://OK.TEST.:443/a?b=%20#"[:-1], Target("https", "ok.test", 443, "/a?b=%20")),
        ("https://ok.test", Target("https", "ok.test", 443, "/")),
        ("https://ok.test?q", Target("https", "ok.test", 443, "/?q")),
        ("https://xn--bcher-kva.test/", Target("https", "xn--bcher-kva.test", 443, "/")),
    ],
)
def test_reads_a_plain_url(url: str, target: Target) -> None:
    assert parse_url(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "", "ok.test", "//ok.test/", "ftp://ok.test/", "http:/ok.test/", "http://", "http:///x", "http://.",
        "HTTP://ok.test/", "http://127.0.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/",
        "http://0177.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://ok.test@evil.test/",
        "http://evil.test#@ok.test/", "http://evil.test\\@ok.test/", "http://ok.test%00/", "http://a..b/",
        "http://ok.test\0/", "http://ok.test /", "http://ok.test/a b", "http://ok.test/\n", "http://ok.test:/x",
        "http://ok.test:0/", "http://ok.test:65536/", "http://ok.test:443:443/", "http://-a.test/",
        "http://büch.test/", "http://ok。test/", "http://ok.test/é", "http://" + "a" * 64 + ".test/",
        "http://ok.test/" + "a" * 5000, "http://ok.1/", "http://1.2.3.4.5/", "http://ok_.test/", "http://ok.test..",
    ],
)  # fmt: skip
def test_refuses_every_other_form(url: str) -> None:
    refused = parse_url(url)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.began) == ("HOST_NOT_ALLOWED", False)


def test_only_a_listed_host_and_port_is_reached() -> None:
    def listed(url: str) -> bool:
        target = parse_url(url)
        assert isinstance(target, Target)
        return entry_for(target, (OK,)) == OK

    assert listed("https://ok.test/")
    assert not listed("http://ok.test/")
    assert not listed("https://ok.test.evil.test/")
    assert not listed("https://evil-ok.test/")
    target = parse_url("https://ok.test/")
    assert isinstance(target, Target)
    assert isinstance(entry_for(target, ()), Refusal), "an empty list lets nothing through"


NOT_PUBLIC = [
    "0.0.0.0", "10.0.0.5", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
    "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "168.63.129.16", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.88.99.1",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::7f00:1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "4000::1", "5f00::1",
]  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_known_as_such(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    assert isinstance(choose_address(OK, [address]), Refusal)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"],
)
def test_a_public_address_is_known_as_such(address: str) -> None:
    assert choose_address(OK, [address]) == address


def test_one_bad_answer_refuses_all() -> None:
    refused = choose_address(OK, ["8.8.8.8", "10.0.0.5"])
    assert isinstance(refused, Refusal)
    assert refused.code == "ADDRESS_NOT_PUBLIC"
    assert isinstance(choose_address(OK, []), Refusal)
    assert isinstance(choose_address(OK, ["fe80::1%eth0"]), Refusal)


def test_a_private_address_needs_its_own_entry() -> None:
    entry = EgressEntry("in.test", 80, ("10.0.0.0/30", "::1"))
    assert choose_address(entry, ["10.0.0.1", "::1"]) == "10.0.0.1"
    assert isinstance(choose_address(entry, ["10.0.0.4"]), Refusal)
    with pytest.raises(ValueError, match="host bits set"):
        EgressEntry("in.test", 80, ("10.0.0.1/8",))
