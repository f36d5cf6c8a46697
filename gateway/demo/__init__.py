"""The demonstration: an agent's session on a real repository, governed and executed end to end."""
