"""Vendors that the words need, each behind a port named for our need."""
