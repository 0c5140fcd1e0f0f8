"""What survives a crash: the store, and in it the log, its records and their meaning."""
