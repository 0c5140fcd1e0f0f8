"""Attacking a dataflow: crash points, simulation, real clusters and brokers, warm JVMs, laws of projections. For users' own."""

from boatlift.times import check_projection

__all__ = ["check_projection"]
