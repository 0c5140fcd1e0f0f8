"""Sources that rows are pushed to, servers and clients."""
