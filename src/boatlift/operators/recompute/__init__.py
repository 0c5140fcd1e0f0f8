"""The recompute operator: a table computed anew every now and then."""
