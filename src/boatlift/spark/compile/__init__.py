"""The dataflow, compiled for Spark.

Reading order: `operator` (the contract of a compiled operator), `keyed` (operators with a kernel), `united`, `unit` (a
tree of compiled operators as a plan), `program` (all units, and the program's identity).
"""
