"""`doctor`: whether this machine and this directory are fit, each finding with its remedy; mends nothing."""

from __future__ import annotations

import os
from dataclasses import asdict, replace

from gateway.cli.name import as_called
from gateway.cli.option import AsJson, Data
from gateway.cli.output import progress, standard_output
from gateway.cli.place import enter, named_directory
from gateway.cli.verdict import Exit


def doctor(data: Data = None, as_json: AsJson = False) -> int:
    """Look at the machine, the directory and what it holds; 1 where something failed."""
    output = standard_output(as_json)
    directory = named_directory(data)
    if directory.path.exists():
        directory = enter(data)
    from gateway.embedded.environment import check_all
    from gateway.examination import examine

    with progress("examining"):
        found = [*check_all(directory, os.environ), *examine(directory)]
    checks = [
        replace(check, detail=as_called(check.detail), remedy=as_called(check.remedy)) for check in found
    ]
    ok = not any(check.state == "failed" for check in checks)
    if as_json:
        output.json({"ok": ok, "checks": [asdict(check) for check in checks]})
    else:
        output.table(
            ("check", "state", "found"), [(check.name, check.state, check.detail) for check in checks]
        )
        for check in checks:
            if check.remedy and check.state in ("failed", "degraded"):
                output.text(f"{check.name}: {check.remedy}")
        output.text("fit to run" if ok else "NOT FIT: see above")
    return Exit.OK if ok else Exit.ERROR
