"""The first rows of each key in an order, kept up to date."""
