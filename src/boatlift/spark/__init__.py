"""The Spark side: plans, tasks, state."""
