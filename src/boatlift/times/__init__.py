"""Logical time: domains, frontiers, projections. Pure."""
