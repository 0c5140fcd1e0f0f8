"""The dataflow, compiled for Spark: the contract of its operators, units as plans, the program's identity."""
