"""Spark's aggregate columns, read, checked, and computed exactly by kernels; for any operator that aggregates."""
