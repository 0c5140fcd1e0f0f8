"""Files as a source: CSV and Parquet."""
