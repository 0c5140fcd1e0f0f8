"""Operators on changes as they run inside a task, one after the other: nodes, and the feeds between them."""
