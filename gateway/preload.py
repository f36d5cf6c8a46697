"""Imports what the roles share, once, so that each forked process starts at once and shares its pages."""

from __future__ import annotations

from importlib import import_module

SHARED = (
    "celery.app.amqp",
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "kombu.transport.redis",
    "sqlalchemy.dialects.sqlite",
    "workers.adapters.celery_pool",
    "gateway.roles",
)
WITH_POSTGRES = ("governance.adapters.postgres_ledger", "workers.adapters.postgres_projection")


def import_shared(*, with_postgres: bool = False) -> None:
    """Import each; none of them starts a thread or opens anything."""
    for name in (*SHARED, *(WITH_POSTGRES if with_postgres else ())):
        import_module(name)
