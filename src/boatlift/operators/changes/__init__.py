"""The changes operator: rows that carry weights, taken as changes."""
