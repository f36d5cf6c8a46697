"""What a new installation records first: its keys, its tools and its operator; repeated at every start.

Makes no key and opens no store.
"""

from __future__ import annotations

from collections.abc import Mapping

from governance.catalogue import add_tools, builtin_tools, has_tools
from governance.keys import KeyPurpose
from governance.ledger import Append, Head, Ledger
from governance.principal import LOCAL_CLIENT, LOCAL_OPERATOR, find_principal, register
from interlock.event import InstallationStarted, PrincipalRegistered, Stream, StreamKind, new_event
from interlock.tier import Tier

ACTOR = "installation"
POLICY = "default@1"
"""What an embedded installation starts with: session modes, and one approver for what lies above."""

INSTALLATION = Stream(StreamKind.CONTROL.value, "installation")


def install(ledger: Ledger, public: Mapping[KeyPurpose, str], kids: Mapping[KeyPurpose, str]) -> None:
    """Record what a start needs and is not recorded yet; `public` and `kids` are the installation's keys.

    Where everything is recorded it only reads: not every role may write what an installation begins with.
    """
    with ledger.read() as view:
        is_started = INSTALLATION in view.heads([INSTALLATION])
        is_equipped = has_tools(view, builtin_tools())
    if not is_started:
        _start(ledger, public, kids)
    if not is_equipped:
        add_tools(ledger, builtin_tools(), added_by=ACTOR, replace=True)
    _register_locals(ledger)


def _start(ledger: Ledger, public: Mapping[KeyPurpose, str], kids: Mapping[KeyPurpose, str]) -> None:
    payload = InstallationStarted(
        incarnation=ledger.info.incarnation,
        governance_kid=kids[KeyPurpose.GOVERNANCE],
        governance_key=public[KeyPurpose.GOVERNANCE],
        pool_kid=kids[KeyPurpose.POOL],
        pool_key=public[KeyPurpose.POOL],
        anchor_kid=kids[KeyPurpose.ANCHOR],
        anchor_key=public[KeyPurpose.ANCHOR],
    )
    event = new_event(payload, cause="operator:start", actor=ACTOR)
    head = Head(INSTALLATION.kind, INSTALLATION.id, phase="started")
    with ledger.write([str(INSTALLATION)], control=True) as transaction:
        # One that somebody else has started meanwhile loses here, which is what is wanted.
        transaction.append([Append(INSTALLATION, 0, [event], head=head)])


def _register_locals(ledger: Ledger) -> None:
    """The client that the local queue belongs to, and the person at the terminal."""
    everything = tuple(tier.value for tier in Tier)
    wanted = {
        LOCAL_CLIENT: PrincipalRegistered(role="client", person=LOCAL_CLIENT),
        LOCAL_OPERATOR: PrincipalRegistered(
            role="operator", person=LOCAL_OPERATOR, tiers=everything, tools=("*",)
        ),
    }
    with ledger.read() as view:
        missing = [name for name in wanted if find_principal(view, name) is None]
    for name in missing:
        register(ledger, name, wanted[name], by=ACTOR)
