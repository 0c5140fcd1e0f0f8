"""Reductions: the aggregates of one step's rows."""
