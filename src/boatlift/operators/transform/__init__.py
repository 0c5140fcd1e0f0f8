"""The transform operator: a row-wise function."""
