"""The columns of staged messages: what tasks stage for a Kafka sink, and what its writers read."""

KEY, VALUE, HEADERS = "key", "value", "headers"

GROUP = "_group"
"""A row's group, by which writers divide rows; see `division`."""
