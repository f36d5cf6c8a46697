"""One machine, no server to install: account, data directory, broker and process tree of `interlock up`.

A foreground process keeps the terminal; below it one single-threaded parent imports the heavy modules
once and forks every role. Whichever of the two dies, the other ends everything that was started.
Nothing here decides, records or runs an invocation.
"""
