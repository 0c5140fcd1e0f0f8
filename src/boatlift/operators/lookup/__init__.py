"""Lookups: each row gets the latest rows of tables."""
