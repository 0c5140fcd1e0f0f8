"""Keyed aggregates."""
