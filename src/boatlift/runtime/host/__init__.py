"""The host: the shell around the state machine, in one driver process."""
