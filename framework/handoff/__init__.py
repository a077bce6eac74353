"""The handoff machines: one unit's move, without I/O, clock or randomness."""
