"""Attacking a dataflow: crash points, simulation, real clusters, warm JVMs. For users' own dataflows too."""
