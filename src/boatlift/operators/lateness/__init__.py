"""LATENESS: how late rows can be, the bound of event time that follows from it, and the rows that are later still."""
