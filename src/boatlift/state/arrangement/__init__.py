"""Arrangements: the sum of all changes of a stream, as distinct rows with weights, indexed by key."""
