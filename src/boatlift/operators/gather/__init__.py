"""The gather operator: the rows of several steps as one."""
