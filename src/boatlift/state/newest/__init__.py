"""Newest rows: the last written row of each key; a tombstone marks a key without a row."""
