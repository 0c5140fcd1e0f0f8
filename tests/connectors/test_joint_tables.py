"""Tables of one database, written in one transaction: of SQLite, PostgreSQL, MariaDB and MySQL."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from boatlift.connectors import sqlite
from boatlift.dataflow.contracts import Sink
from connectors.conformance import Row, ordered
from connectors.joint_laws import JointLaws
from connectors.sink_cases import MysqlAppendCase, MysqlCase, PostgresAppendCase, PostgresCase, SqliteCase


class SqliteJointCase(SqliteCase):
    """A table that has the name of a folder, in a database beside the folder."""

    @classmethod
    def make(cls, folder: Path) -> Sink:
        return sqlite(folder.parent / "out.db", table=folder.name, key=["k"], lock_timeout=5)

    @staticmethod
    def read(folder: Path) -> list[Row]:
        with closing(sqlite3.connect(folder.parent / "out.db")) as database:
            return ordered(database.execute(f"SELECT k, name, value FROM {folder.name}").fetchall())

    @classmethod
    def remove(cls, folder: Path) -> None:
        for path in folder.parent.glob("out.db*"):
            path.unlink()


class TestTablesOfSqlite(JointLaws):
    case = SqliteJointCase
    stride = 3


@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_server")
class TestTablesOfPostgres(JointLaws):
    case = PostgresCase
    stride = 9


@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_server")
class TestAppendedTablesOfPostgres(JointLaws):
    case = PostgresAppendCase
    stride = 29


@pytest.mark.mysql
@pytest.mark.usefixtures("mysql_server")
class TestTablesOfMysql(JointLaws):
    case = MysqlCase
    stride = 9


@pytest.mark.mysql
@pytest.mark.usefixtures("mysql_server")
class TestAppendedTablesOfMysql(JointLaws):
    case = MysqlAppendCase
    stride = 29
