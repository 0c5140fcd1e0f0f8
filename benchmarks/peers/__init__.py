"""The other systems: Structured Streaming, Flink, DBSP, plain batches; each with its best settings."""
