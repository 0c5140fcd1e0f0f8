"""The recompute operator: a table computed anew in epochs of its own."""
