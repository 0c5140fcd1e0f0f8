"""Boatlift measured side by side with Spark Structured Streaming, as ratios (`python -m benchmarks`)."""
