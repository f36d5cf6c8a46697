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


def import_shared() -> None:
    """Import each; none of them starts a thread or opens anything."""
    for name in SHARED:
        import_module(name)
