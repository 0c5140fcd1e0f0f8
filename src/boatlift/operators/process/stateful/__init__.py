"""PySpark's `StatefulProcessor`, as `transformWithState` has it, over state that Boatlift keeps."""
