"""`inbox`: what waits for an answer, with its exact frozen arguments and the one command that answers it."""

from __future__ import annotations

from gateway.cli.option import AsJson, Data
from gateway.cli.output import complain, standard_output
from gateway.cli.place import enter

REQUESTS_MAX = 1_000


def inbox(data: Data = None, as_json: AsJson = False) -> None:
    """Invocations that wait for an approval, the greatest tier first, then the least time left."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.cli.card import cards
    from gateway.reading import open_reading
    from governance.docket import load_dockets
    from interlock.event import StreamKind
    from interlock.phase import Phase

    with open_reading(directory) as reading, reading.ledger.read() as view:
        kind, phase = StreamKind.INVOCATION.value, Phase.AWAITING_APPROVAL.value
        heads = view.heads_of(kind, phase=phase, limit=REQUESTS_MAX)
        waiting = cards(load_dockets(view, [head.id for head in heads]).values(), view.now_us)
    if as_json:
        output.json({"requests": [card.to_json() for card in waiting]})
    else:
        for card in waiting:
            output.text("\n".join(card.lines()))
            output.text("")
        output.text(f"{len(waiting)} wait for an answer")
    if len(heads) == REQUESTS_MAX:
        complain(f"only the {REQUESTS_MAX} oldest are shown")
