"""PySpark's `StatefulProcessor` (`transformWithState`) over Boatlift's state."""
