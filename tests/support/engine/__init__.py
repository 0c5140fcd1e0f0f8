"""Engines and drivers in memory, with which a machine or a host runs without Spark."""
