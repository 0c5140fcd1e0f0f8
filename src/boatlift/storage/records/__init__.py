"""The records of the log, their bytes and their meaning. Pure."""
