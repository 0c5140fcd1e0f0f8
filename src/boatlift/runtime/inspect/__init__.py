"""Stores, recoveries and programs as data: the command line prints the data.

Each module has functions that read a store (and perhaps a plan) and return frozen structs. `msgspec.to_builtins` turns
the structs into JSON values, which a command prints with `--json`. Nothing here prints, changes a store or knows Spark.

In reading order: `contents` (of a store), `explanation` (the recovery after a failure now), `status`;
`source_steps`; then `program` and `failure_costs`, about a program before it runs.
"""
