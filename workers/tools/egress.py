"""Which host, port and address `http.fetch` may reach: pure decisions on bytes, no look-up, no connection.

The host's bytes are judged before anything is compared, and every address of the one resolution is judged
by a table of our own: what the standard library calls global differs between its versions and includes
addresses that are not.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from workers.supervisor.profile import EgressEntry
from workers.tools.plan import Refusal

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

URL_BYTES_MAX = 4096
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[^/?#:@\[\]\\]*)(?::(?P<port>[0-9]{1,5}))?(?P<target>(?:/[!-~]*|\?[!-~]*)?)",
    re.ASCII,
)
_HOST = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*(?P<last>[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)\Z",
    re.ASCII,
)
_PORTS: Mapping[str, int] = {"http": 80, "https": 443}

_NOT_PUBLIC: tuple[str, ...] = (
    # IPv4: this network, private, shared, loopback, link-local and the metadata addresses in it, …
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    # … protocol assignments (a cloud keeps its metadata there), documentation, relay, benchmarking, …
    "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
    "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    # … multicast, reserved, broadcast, and a cloud's host agent in otherwise public space.
    "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
)  # fmt: skip
# IPv6 is judged the other way round: only global unicast is public, less what is carved out of it.
_GLOBAL_UNICAST = "2000::/3"
_CARVED_OUT: tuple[str, ...] = ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
_NAT64 = "64:ff9b::/96"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL points: a host of harmless bytes, a port, and the path and query as they were given."""

    scheme: str
    host: str
    port: int
    target: str


def parse_url(url: str) -> Target | Refusal:
    """The one reading of a URL; every form that two parsers might read differently is refused."""
    match = _URL.fullmatch(url) if len(url) <= URL_BYTES_MAX else None
    if match is None or "#" in url or "\\" in url:
        return Refusal("HOST_NOT_ALLOWED", "not http(s)://host[:port]/path?query in plain ASCII, or too long")
    host = match["host"].lower().removesuffix(".")
    name = _HOST.match(host)
    if name is None or not re.search("[a-z]", name["last"]) or name["last"].startswith("0x"):
        return Refusal("HOST_NOT_ALLOWED", "the host is no plain name; address literals are never accepted")
    port = int(match["port"] or _PORTS[match["scheme"]])
    if not 0 < port < 65536:
        return Refusal("HOST_NOT_ALLOWED", f"no port {port}")
    target = match["target"]
    return Target(match["scheme"], host, port, target if target.startswith("/") else "/" + target)


def entry_for(target: Target, entries: Sequence[EgressEntry]) -> EgressEntry | Refusal:
    """The configured entry that lets `target` be reached."""
    for entry in entries:
        if entry.host.lower().removesuffix(".") == target.host and entry.port == target.port:
            return entry
    return Refusal("HOST_NOT_ALLOWED", f"{target.host}:{target.port} is not on the list of this pool")


def choose_address(entry: EgressEntry, addresses: Sequence[str]) -> str | Refusal:
    """The address to connect to: the first, if every one of them may be reached; one bad one refuses all."""
    if not addresses:
        return Refusal("UPSTREAM_UNREACHABLE", f"{entry.host} has no address")
    networks = [ipaddress.ip_network(network) for network in entry.networks]
    for text in addresses:
        address = _parsed(text)
        if address is None or not (is_public(address) or _is_in(address, networks)):
            return Refusal("ADDRESS_NOT_PUBLIC", f"{entry.host} resolves to {text}, which is not public")
    return addresses[0]


def is_public(address: Address) -> bool:
    """Whether `address` belongs to the public internet; an embedded IPv4 address is judged as well."""
    if isinstance(address, ipaddress.IPv4Address):
        return not _is_in(address, map(ipaddress.ip_network, _NOT_PUBLIC))
    if address in ipaddress.ip_network(_NAT64):
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    is_unicast = address in ipaddress.ip_network(_GLOBAL_UNICAST)
    return is_unicast and not _is_in(address, map(ipaddress.ip_network, _CARVED_OUT))


def _parsed(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None  # A scope id, or no address at all.


def _is_in(address: Address, networks: Sequence[Network] | map[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
