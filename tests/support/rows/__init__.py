"""Rows and oracles that tests of Spark, views and keyed state share."""
