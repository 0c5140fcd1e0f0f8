"""`bl.run` and `bl.start`: a dataflow, a store, go."""
