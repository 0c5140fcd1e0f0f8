"""The union operator: the rows of several streams, time by time."""
