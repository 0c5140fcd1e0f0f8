"""Spark's aggregate columns: parsed and checked here, computed exactly by kernels; for all operators that aggregate."""
