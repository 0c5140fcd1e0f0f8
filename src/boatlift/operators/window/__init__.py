"""Windows of event time: aggregates by window and key, given at each change, or once when a window has ended."""
