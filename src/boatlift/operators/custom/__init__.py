"""Operators with a data structure of their own: an index, a sketch, a model."""
