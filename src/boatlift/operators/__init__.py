"""Operators: one folder each; none knows another."""
