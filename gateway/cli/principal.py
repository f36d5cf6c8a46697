"""`principals`: who may propose, answer and operate. Registering one is an event of the ledger.

A private key is printed once and kept nowhere; the ledger knows public ones only.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway.cli.option import AsJson, Data
from gateway.cli.output import standard_output
from gateway.cli.place import enter, enter_running, require_owner
from gateway.cli.visible import visible
from interlock.errors import InterlockError, UsageError

LISTED_MAX = 10_000
TIERS = ("T0", "T1", "T2", "T3", "T4")
_NAME_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
_TOOL_FORM = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._/-]*(\.\*)?\Z")


class _Role(StrEnum):
    """What it is registered for."""

    client = "client"
    approver = "approver"
    bot = "bot"
    operator = "operator"


_Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
_Wanted = Annotated[_Role, typer.Option("--role", help="What it is for.")]
_Person = Annotated[
    str, typer.Option("--person", metavar="P", help="The person behind it: who counts as one voice.")
]
_Key = Annotated[
    str, typer.Option("--public-key", metavar="HEX", help="Its Ed25519 public key: 64 hexadecimal digits.")
]
_Tiers = Annotated[str, typer.Option("--tiers", metavar="T0,T1,...", help="The tiers it may grant.")]
_Tools = Annotated[
    str,
    typer.Option("--tools", metavar="NAME,...", help="The tools it may grant: `name`, `prefix.*` or `*`."),
]
_Replace = Annotated[bool, typer.Option("--replace", help="Give a known one a new key and new rights.")]


def add(
    name: _Name,
    role: _Wanted,
    person: _Person,
    public_key: _Key = "",
    tiers: _Tiers = "",
    tools: _Tools = "",
    replace: _Replace = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Register a client, approver, bot or operator with its key and its rights."""
    output = standard_output(as_json)
    if not _NAME_FORM.match(name):
        raise UsageError("a name is 1 to 64 of A-Z a-z 0-9 . _ @ - and begins with a letter or digit")
    granted = _listed(tiers, "--tiers", lambda tier: tier in TIERS, ", ".join(TIERS))
    globs = _listed(tools, "--tools", lambda tool: bool(_TOOL_FORM.match(tool)), "a name, prefix.* or *")
    _require_rights(role, public_key, granted, globs)
    directory = enter_running(data)
    require_owner(directory)
    from gateway.reading import open_for_writing
    from gateway.wiring import wake_relay
    from governance.principal import LOCAL_OPERATOR, find_principal, register
    from interlock.event import PrincipalRegistered

    payload = PrincipalRegistered(
        role=role.value,
        person=person,
        kid=_kid(public_key),
        public_key=public_key.lower(),
        tiers=granted,
        tools=globs,
    )
    with open_for_writing(directory) as ledger:
        with ledger.read() as view:
            known = find_principal(view, name) is not None
        if known and not replace:
            raise InterlockError("PRINCIPAL_EXISTS", f"{name} is registered already")
        register(ledger, name, payload, by=LOCAL_OPERATOR)
    wake_relay(directory)
    if as_json:
        output.json({"name": name, "replaced": known, **payload.to_json()})
    output.text(f"{'replaced' if known else 'registered'} {name} as {role.value} for {visible(person)}")


def list_principals(data: Data = None, as_json: AsJson = False) -> None:
    """Everybody who is registered, with keys and rights."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.reading import open_reading
    from governance.principal import find_principals
    from interlock.event import StreamKind

    with open_reading(directory) as reading, reading.ledger.read() as view:
        heads = view.heads_of(StreamKind.PRINCIPAL.value, limit=LISTED_MAX)
        found = find_principals(view, [head.id for head in heads])
    people = [found[name] for name in sorted(found)]
    if as_json:
        output.json({"principals": [_document(one) for one in people]})
        return
    rows = [
        (one.name, one.role, one.person, one.kid, " ".join(one.tiers), " ".join(one.tools)) for one in people
    ]
    output.table(("name", "role", "person", "key", "tiers", "tools"), rows)


def new_key(as_json: AsJson = False) -> None:
    """Make a key pair and print it. The private key is kept nowhere: this is the only time it is seen."""
    output = standard_output(as_json)
    from interlock.adapters.ed25519 import Ed25519Signer

    signer = Ed25519Signer.generate()
    pair = {"private": signer.private_bytes().hex(), "public": signer.public_hex, "kid": signer.kid}
    if as_json:
        output.json(pair)
    else:
        output.facts(pair)


def _document(one: Any) -> dict[str, Any]:
    return {
        "name": one.name,
        "role": one.role,
        "person": one.person,
        "kid": one.kid,
        "public_key": one.public_key,
        "tenant": one.tenant,
        "tiers": list(one.tiers),
        "tools": list(one.tools),
    }


def _listed(text: str, option: str, is_good: Any, known: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if not is_good(word):
            raise UsageError(f"{option}: {visible(word)[:64]} is not one of {known}")
    return words


def _require_rights(role: _Role, public_key: str, tiers: tuple[str, ...], tools: tuple[str, ...]) -> None:
    if role in (_Role.client, _Role.bot) and not public_key:
        raise UsageError(
            f"a {role.value} signs: give --public-key (`interlock principals new-key` makes one)"
        )
    if role in (_Role.approver, _Role.bot) and not (tiers and tools):
        raise UsageError(f"a {role.value} grants by tier and tool: give --tiers and --tools")


def _kid(public_key: str) -> str:
    if not public_key:
        return ""
    from interlock.adapters.ed25519 import kid_of

    if not re.fullmatch(r"[0-9a-fA-F]{64}", public_key):
        raise UsageError("--public-key is 64 hexadecimal digits")
    return kid_of(public_key.lower())
