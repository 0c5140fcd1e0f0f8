"""What all benchmarks share: sides and their turns (`side`, `measuring`), data, stores that count, the table."""
