"""RUNS: pools that claim, execute in isolation and report; the projector. Never decides."""
