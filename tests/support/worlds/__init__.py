"""Facts, logs and recovery problems that tests draw, and deliberate faults of the core."""
