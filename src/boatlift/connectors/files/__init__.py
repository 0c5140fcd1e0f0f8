"""Files as a source: CSV, JSON and Parquet."""
