"""Objects of a bucket as files: `place` (reading), `listing` (which there are), `source` (positions)."""
