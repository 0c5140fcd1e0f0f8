"""Duplicates: of rows with one key the first."""
