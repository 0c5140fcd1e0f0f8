"""Bad rows: the valid rows of a source, and the dead letters of the others."""
