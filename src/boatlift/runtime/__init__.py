"""Runs a dataflow: a pure state machine, and the thin shell around it."""
