"""Sources and sinks. Each imports PySpark and PyArrow when it is used, so that importing this package is quick."""

from boatlift.connectors import kafka
from boatlift.connectors.databases.mysql.sink import mysql
from boatlift.connectors.databases.postgres.sink import postgres
from boatlift.connectors.deliver import foreach, http_post
from boatlift.connectors.delta.sink import delta
from boatlift.connectors.files.options import files
from boatlift.connectors.generator import generator
from boatlift.connectors.parquet.sink import parquet
from boatlift.connectors.push import push, reply
from boatlift.connectors.sqlite.sink import sqlite
from boatlift.connectors.stdout import stdout

__all__ = [
    "delta",
    "files",
    "foreach",
    "generator",
    "http_post",
    "kafka",
    "mysql",
    "parquet",
    "postgres",
    "push",
    "reply",
    "sqlite",
    "stdout",
]
