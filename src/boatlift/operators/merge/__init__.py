"""The merge operator: the rows of several streams, in arrival order."""
