"""Tables of databases as sinks: what all have in common, and a dialect for each kind of server."""
