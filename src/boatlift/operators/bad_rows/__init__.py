"""BAD ROWS: the rows of a source that fit its columns, and the dead letters of those that do not."""
