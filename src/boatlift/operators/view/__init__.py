"""The view operator: any query of Spark's over streams, kept up to date."""
