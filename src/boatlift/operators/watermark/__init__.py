"""Watermarks: the allowed lateness of rows, the event time that follows from it, and late rows."""
