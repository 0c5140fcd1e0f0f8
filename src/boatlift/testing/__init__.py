"""Attacking a dataflow: crash points, simulation, real clusters, warm JVMs, laws of projections. For users' own too."""

from boatlift.times import check_projection

__all__ = ["check_projection"]
