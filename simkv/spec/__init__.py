"""Frozen descriptions of what is simulated: no I/O, derived properties only."""
