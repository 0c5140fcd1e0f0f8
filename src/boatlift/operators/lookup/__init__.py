"""Lookups: each row gets the newest rows of tables."""
