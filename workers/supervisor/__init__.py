"""Runs one execution: one call in, one outcome out, whatever the tool, the pool or the machine does.

Three processes: the pool asks, the spawner forks, a supervisor owns one execution. None of them ever
reads or writes the ledger, and none of them retries an effect.
"""
