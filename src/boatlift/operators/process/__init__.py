"""Processors with state and timers of the user's own, by key."""
