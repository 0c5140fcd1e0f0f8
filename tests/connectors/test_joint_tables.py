"""Tables of one database, written in one transaction: of SQLite, PostgreSQL, MariaDB and MySQL."""

from __future__ import annotations

import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from boatlift.connectors import sqlite
from boatlift.dataflow.contracts import Committed, Outcome, Sink
from connectors.conformance import Row, ordered, rows_of
from connectors.interrupted import Child
from connectors.joint_laws import NAMES, JointLaws, Members, put_traced
from connectors.sink_cases import DatabaseCase, MysqlAppendCase, MysqlCase, PostgresAppendCase, PostgresCase, SqliteCase


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


class DatabaseJointLaws(JointLaws):
    """Of servers, on which a successor ends the transactions of older owners."""

    case: ClassVar[type[DatabaseCase]]

    @pytest.mark.crash
    def test_an_owner_that_is_stopped_within_an_act_holds_up_no_successor_of_all(self, tmp_path: Path) -> None:
        folder = tmp_path / "place"
        outcomes, lines = Child(put_traced, self.case, folder, 1, 0).answer()
        assert outcomes == ["APPENDED"] * 2
        child = Child(put_traced, self.case, folder, 2, 1, point=lines * 2 // 3, number=signal.SIGSTOP)
        assert child.stopped()
        successor = Members(self.case, folder)
        successor.sinks = [
            self.case.sink(table=self.case.name(each), key=self.case.key, lock_timeout=30) for each in successor.folders
        ]
        with ThreadPoolExecutor(2) as threads:  # as a host opens them
            opened = [
                threads.submit(sink.open, successor.context(name, 3))
                for sink, name in zip(successor.sinks, NAMES, strict=True)
            ]
            steps = [each.result() for each in opened]
        assert steps == [Committed(0, len(rows_of(0)), "digest 0")] * 2
        assert successor.put(1) == [Outcome.APPENDED] * 2
        successor.assert_seen(2, 2)
        child.kill()
        successor.assert_seen(2, 2)
        successor.close()


@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_server")
class TestTablesOfPostgres(DatabaseJointLaws):
    case = PostgresCase
    stride = 9


@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_server")
class TestAppendedTablesOfPostgres(DatabaseJointLaws):
    case = PostgresAppendCase
    stride = 29


@pytest.mark.mysql
@pytest.mark.usefixtures("mysql_server")
class TestTablesOfMysql(DatabaseJointLaws):
    case = MysqlCase
    stride = 9


@pytest.mark.mysql
@pytest.mark.usefixtures("mysql_server")
class TestAppendedTablesOfMysql(DatabaseJointLaws):
    case = MysqlAppendCase
    stride = 29
