"""Stores, recoveries and programs as data: the command line prints the data, and a page could show them.

Each module has a function that reads a store (and perhaps a plan) and returns frozen structs. `msgspec.to_builtins`
makes JSON values of the structs; with `--json` a command prints these values. Nothing in here prints, changes a store
or knows Spark.

Read `opening.py`, then `status.py`. `outlook.py` is shared by `status.py` and `explanation.py`: it computes the
recovery that a failure now would lead to. `program.py` and `failure_costs.py` are about a program before it runs.
"""
