"""What a store and a program look like, as data."""
