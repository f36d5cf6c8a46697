"""The command line: reads what was asked, lets the other packages do it, and shows what came of it.

It decides nothing. Modules here import a store or a broker only inside the command that needs it: root is
given up before, and a plain command starts in a fraction of a second.
"""
