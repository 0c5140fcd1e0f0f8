"""Sources and sinks. What each needs of Spark and Arrow is imported when it is used, so that importing it is quick."""

from boatlift.connectors import kafka
from boatlift.connectors.files import files
from boatlift.connectors.generator import generator
from boatlift.connectors.parquet import parquet
from boatlift.connectors.pushes import push
from boatlift.connectors.sqlite import sqlite

__all__ = ["files", "generator", "kafka", "parquet", "push", "sqlite"]
