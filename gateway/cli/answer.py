"""`approve` and `deny`: record the answer of the person at this terminal and wake the governor.

Only governance counts answers, signs permits and releases. The account that owns the data is the operator;
nobody else can answer here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.option import AsJson, Data, Ids
from gateway.cli.output import Output, complain, standard_output
from gateway.cli.place import enter_running, require_owner
from gateway.cli.verdict import Exit
from interlock.errors import UsageError

if TYPE_CHECKING:
    from governance.ledger import Ledger
    from interlock.decision import Reason

TERMS_DIGITS_MIN = 8

_As = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Answer as this approver (embedded only); else the operator."),
]
_Terms = Annotated[
    str | None,
    typer.Option(
        "--terms", metavar="DIGEST", help="Answer only if these terms, or their first digits, still wait."
    ),
]
_Reason = Annotated[str, typer.Option("--reason", metavar="R", help="Why; the requester reads it.")]


def approve(
    ids: Ids, as_name: _As = None, terms: _Terms = None, data: Data = None, as_json: AsJson = False
) -> int:
    """Say yes to parked invocations."""
    return _answer("approve", ids, "", as_name, terms, data, standard_output(as_json))


def deny(
    ids: Ids,
    reason: _Reason,
    as_name: _As = None,
    terms: _Terms = None,
    data: Data = None,
    as_json: AsJson = False,
) -> int:
    """Say no to parked invocations; final for the same call."""
    return _answer("deny", ids, reason, as_name, terms, data, standard_output(as_json))


def _answer(
    decision: str,
    ids: list[str],
    reason: str,
    as_name: str | None,
    terms: str | None,
    data: Any,
    output: Output,
) -> int:
    _require_terms(terms, ids)
    directory = enter_running(data)
    require_owner(directory)
    from gateway.reading import open_for_writing
    from gateway.wiring import ask_review, wake_relay
    from governance.principal import LOCAL_OPERATOR

    approver = as_name or LOCAL_OPERATOR
    with open_for_writing(directory) as ledger:
        answers = {
            invocation_id: _cast(ledger, invocation_id, approver, decision, reason, terms)
            for invocation_id in ids
        }
    counted = [invocation_id for invocation_id, refused in answers.items() if refused is None]
    ask_review(directory, counted)
    wake_relay(directory)
    _print(output, answers, approver, decision)
    return Exit.OK if len(counted) == len(answers) else Exit.ERROR


def _require_terms(terms: str | None, ids: list[str]) -> None:
    if terms is None:
        return
    if len(ids) != 1:
        raise UsageError("--terms belongs to one invocation")
    if len(terms) < TERMS_DIGITS_MIN:
        raise UsageError(f"--terms takes at least {TERMS_DIGITS_MIN} digits")


def _cast(
    ledger: Ledger, invocation_id: str, approver: str, decision: Any, why: str, terms: str | None
) -> Reason | None:
    """Record one answer to the terms that wait now; the Reason where it does not count."""
    from governance.docket import load_dockets
    from governance.vote import cast
    from interlock.adapters.ed25519 import is_signed_by
    from interlock.approval import Vote
    from interlock.decision import Reason

    with ledger.read() as view:
        docket = load_dockets(view, [invocation_id]).get(invocation_id)
    if docket is None:
        return Reason(code="NOT_FOUND", sentence="there is no such invocation")
    if docket.request is None:
        return Reason(code="NOT_PARKED", sentence="it does not wait for an approval")
    digest = docket.request.snapshot.terms.digest
    if terms is not None and not digest.startswith(terms):
        return Reason(code="VOTE_DIGEST_MISMATCH", sentence="other terms wait now than those that were shown")
    vote = Vote(
        invocation_id=invocation_id,
        approver=approver,
        decision=decision,
        # The same answer to the same terms is one answer, however often it is given.
        decision_id=f"cli-{approver}-{decision}-{digest[:32]}",
        terms_digest=digest,
        reason=why,
        via="cli",
    )
    # The terminal's account has proved who it is; whether it may, the rules of voting say.
    return cast(ledger, vote, verify=is_signed_by, trusted=True)


def _print(output: Output, answers: dict[str, Reason | None], approver: str, decision: str) -> None:
    from interlock.errors import InterlockError

    if output.as_json:
        output.json({"answers": [_line(*item, approver, decision) for item in answers.items()]})
    for invocation_id, refused in answers.items():
        if refused is None:
            output.text(f"{invocation_id}  {decision} recorded; governance decides")
        else:
            complain(str(InterlockError(refused.code, f"{invocation_id}: {refused.sentence}")))


def _line(invocation_id: str, refused: Reason | None, approver: str, decision: str) -> dict[str, Any]:
    return {
        "invocation_id": invocation_id,
        "approver": approver,
        "decision": decision,
        "counted": refused is None,
        "code": None if refused is None else refused.code,
        "sentence": None if refused is None else refused.sentence,
    }
