"""The steps from one format to the next, in order, each with the number it leaves behind.

A step is a module of alembic's kind: `revision` is the format it reaches, `down_revision` the one before,
`MIN_READER` the oldest format whose programs may use the ledger afterwards. With `IN_TRANSACTION = False` it
runs statement by statement and can be taken again. It never reads an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import Script, ScriptDirectory

from governance.adapters.migration.store import Store


def take_steps(store: Store, until: int | None, beside: Sequence[Path] = ()) -> list[str]:
    """Take what is missing up to `until`; the formats reached."""
    applied = []
    with store.alone():
        for step in steps_after(store.report().found, store.versions, beside):
            if until is not None and int(step.revision) > until:
                break
            in_transaction = getattr(step.module, "IN_TRANSACTION", True)
            with store.step(in_transaction=in_transaction) as connection:
                if store.found(connection) >= int(step.revision):
                    continue  # whoever opened it first has just made it
                with Operations.context(MigrationContext.configure(connection)):
                    step.module.upgrade()
                store.stamp(connection, int(step.revision), int(step.module.MIN_READER))
            applied.append(step.revision)
    return applied


def steps_after(found: int, versions: Path, beside: Sequence[Path] = ()) -> list[Script]:
    """The steps that a ledger of this format lacks, in the order they are taken."""
    script = ScriptDirectory(versions.parent, version_locations=[versions, *beside])
    steps = sorted(script.walk_revisions(), key=lambda step: int(step.revision))
    return [step for step in steps if int(step.revision) > found]
