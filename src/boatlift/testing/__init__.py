"""Tools for tests of dataflows: crash points, real clusters and brokers, warm JVMs, the laws of projections."""

from boatlift.times import check_projection

__all__ = ["check_projection"]
