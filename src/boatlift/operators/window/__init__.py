"""Windows of event time: aggregates by window and key, emitted at each change, or once at the end of a window."""
