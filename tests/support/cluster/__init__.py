"""The dataflow of the cluster test, and the process that runs it."""
