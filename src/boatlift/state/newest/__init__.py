"""Newest rows: of each key the row that was written last; a row that ends its key is a tombstone."""
