"""A table of an SQLite database as a sink."""
