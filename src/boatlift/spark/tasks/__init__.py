"""The tasks of steps: code that runs in Spark's Python workers, its input and its reports."""
