"""The built-in tools: how each is launched and how its answer is read. Contracts are data elsewhere."""
