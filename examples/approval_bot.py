"""An approval bot: it decides from frozen snapshots alone, signs its answer, and sends it to governance.

    ./run principals new-key > bot.key            # private, public, kid
    ./run principals add test-bot --role bot --person alice --public-key HEX --tiers T3 --tools shell.run
    INTERLOCK_BOT_KEY=PRIVATE_HEX ./run python examples/approval_bot.py --name test-bot --data ./.data

It grants looking at files with `cat` and `ls`, denies every other program, and leaves every other tool to
people. Change `decide`: the rest can stay as it is.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from typing import Literal

from gateway.client import connect, parked
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.approval import ApprovalSnapshot
from interlock.canonical import thaw

HARMLESS = ("cat", "ls")
Decision = Literal["approve", "deny"]


def decide(snapshot: ApprovalSnapshot) -> tuple[Decision, str] | None:
    """The bot's answer and why; None leaves it to people. A snapshot holds all that will run, frozen."""
    arguments = thaw(snapshot.arguments)
    if snapshot.tool != "shell.run" or not isinstance(arguments, dict):
        return None
    argv = arguments.get("argv")
    if isinstance(argv, list) and argv and argv[0] in HARMLESS:
        return "approve", ""
    return "deny", f"only {' and '.join(HARMLESS)} are granted here"


def main() -> int:
    """Answer what is parked, until interrupted; with --once, what is parked now."""
    parser = argparse.ArgumentParser(description="An approval bot.")
    parser.add_argument("--data", help="the data directory; else INTERLOCK_DATA")
    parser.add_argument("--name", default="test-bot", help="the name it is registered under")
    parser.add_argument("--once", action="store_true", help="answer what is parked now, and end")
    said = parser.parse_args()
    signer = Ed25519Signer.from_bytes(bytes.fromhex(os.environ["INTERLOCK_BOT_KEY"]))
    answered: set[str] = set()
    pause = threading.Event()
    with connect(said.data) as client:
        while True:
            for snapshot in parked(said.data):
                decision = decide(snapshot)
                if decision is None or snapshot.terms.digest in answered:
                    continue
                what, why = decision
                # The signature is over these very terms: should anything change, the answer does not count.
                answer = client.approve(
                    snapshot, approver=said.name, signer=signer, deny=what == "deny", reason=why
                )
                answered.add(snapshot.terms.digest)
                print(snapshot.invocation_id, what, answer.code or "counted", flush=True)
            if said.once:
                return 0
            pause.wait(0.5)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
