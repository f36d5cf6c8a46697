"""`python -m gateway.cli`: the same command where no console script is installed."""

from __future__ import annotations

import sys

from gateway.cli.main import main

sys.exit(main())
