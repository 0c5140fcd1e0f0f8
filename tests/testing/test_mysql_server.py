"""The MariaDB server that tests start, and the proxy before it."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from boatlift.errors import InvalidError
from boatlift.testing import mysql_server as module
from boatlift.testing.fault_proxy import ProxyFault
from boatlift.testing.mysql_proxy import MysqlProxy
from boatlift.testing.mysql_server import MysqlServer
from support.mysql import query


def test_what_was_committed_is_there_after_a_kill_and_what_was_not_is_gone(mysql_server: MysqlServer) -> None:
    query("CREATE TABLE kept (x int)")
    query("INSERT INTO kept VALUES (1)")
    connection = mysql_server.connect("test", autocommit=False)
    connection.select_db(query("SELECT database()")[0][0])
    connection.query("INSERT INTO kept VALUES (2)")
    port = mysql_server.port
    mysql_server.kill()
    assert not mysql_server.running
    with pytest.raises(pymysql.OperationalError):
        connection.commit()
    mysql_server.restart()
    assert mysql_server.port == port
    assert query("SELECT * FROM kept") == [(1,)]


def test_it_ends_with_its_folder_and_its_process() -> None:
    with MysqlServer({"max-connections": "17"}) as server:
        folder, process = server._folder, server._process
        with server.connect("test") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@max_connections")
            assert cursor.fetchone() == (17,)
    assert process is not None
    assert process.poll() is not None
    assert not folder.exists()


def test_programs_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FOLDERS", str(tmp_path))
    with pytest.raises(InvalidError, match=r"\[MISSING_EXTRA\].*apt-get install -y mariadb-server"), MysqlServer():
        pass


@pytest.mark.parametrize("fault", [ProxyFault.RESET, ProxyFault.RESET_AFTER, ProxyFault.TORN])
def test_a_statement_that_is_lost_is_carried_out_or_not_as_is_said(
    mysql_server: MysqlServer, fault: ProxyFault
) -> None:
    query("CREATE TABLE lost (x int)")
    with MysqlProxy(mysql_server.port, lambda sql: fault if "INSERT" in sql else ProxyFault.NONE) as proxy:
        client = mysql_server.connect(query("SELECT database()")[0][0], port=proxy.port)
        client.query("SELECT 1 UNION SELECT 2")
        with pytest.raises(pymysql.OperationalError):
            client.query("INSERT INTO lost VALUES (1)")
    assert query("SELECT count(*) FROM lost") == [(0 if fault is ProxyFault.RESET else 1,)]
