"""The one server of the run, and a database of each test's own."""

from __future__ import annotations

from tests.support.postgres import postgres as postgres
from tests.support.postgres import postgres_url as postgres_url
