"""MOVES: dispatch, order, relay, timers and sweep. Never decides and never executes."""
