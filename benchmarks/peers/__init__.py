"""Other queues beside ours: each a program that runs in an environment that has that queue, and none of ours.

A peer does the same work as bare Celery here: each call increments one number on a Valkey of its own. Nothing
of the product is imported, and no peer is ever needed.
"""
