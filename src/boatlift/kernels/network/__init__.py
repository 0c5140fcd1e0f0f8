"""Operators on changes inside a task: nodes, and the feeds between them. Read `node` first, then `network`."""
