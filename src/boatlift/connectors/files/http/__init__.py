"""A resource of an HTTP server as an input: `listing` (its states, and those in the store), `source`."""
