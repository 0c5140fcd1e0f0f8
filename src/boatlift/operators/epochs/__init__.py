"""Operators with epochs of their own, each over many steps of their input."""
