"""Keyed state as sorted runs: the files, their merging, their table. No Spark in here."""
