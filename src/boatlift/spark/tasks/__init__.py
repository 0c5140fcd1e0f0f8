"""The tasks of steps: code that runs in Spark's Python workers, and what it reads and reports."""
