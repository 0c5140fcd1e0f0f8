"""Each module measures one thing, as `measure(effort)`; `nexmark_queries` and `event_time` are what several share."""
