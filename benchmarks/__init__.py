"""Measures this machine: the governed way beside bare Celery, in one run, by the same producers.

Part of a checkout and of no distribution. It starts everything it measures and leaves nothing behind.
"""
