"""The PostgreSQL server that tests start, and the proxy before it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from boatlift.errors import InvalidError
from boatlift.testing import postgres_server as module
from boatlift.testing.fault_proxy import ProxyFault
from boatlift.testing.postgres_proxy import PostgresProxy
from boatlift.testing.postgres_server import PostgresServer


def test_what_was_committed_is_there_after_a_kill_and_what_was_not_is_gone(postgres_server: PostgresServer) -> None:
    with postgres_server.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (x int)")
        connection.execute("TRUNCATE kept")
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO kept VALUES (2)")
        port = postgres_server.port
        postgres_server.kill()
        assert not postgres_server.running
        with pytest.raises(psycopg.OperationalError):
            connection.execute("COMMIT")
    postgres_server.restart()
    assert postgres_server.port == port
    with postgres_server.connect() as connection:
        assert connection.execute("SELECT * FROM kept").fetchall() == [(1,)]
        connection.execute("DROP TABLE kept")


def test_it_ends_with_its_folder_and_its_processes() -> None:
    with PostgresServer({"max_connections": "7"}) as server:
        folder, process = server._folder, server._process
        with server.connect() as connection:
            assert connection.execute("SHOW max_connections").fetchone() == ("7",)
    assert process is not None
    assert process.poll() is not None
    assert not folder.exists()


def test_programs_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_INSTALLED", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidError, match=r"\[MISSING_EXTRA\].*apt-get install -y postgresql"), PostgresServer():
        pass


@pytest.mark.parametrize("fault", [ProxyFault.RESET, ProxyFault.RESET_AFTER, ProxyFault.TORN])
def test_a_statement_that_is_lost_is_carried_out_or_not_as_is_said(
    postgres_server: PostgresServer, fault: ProxyFault
) -> None:
    with postgres_server.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS lost")
        connection.execute("CREATE TABLE lost (x int)")
        with PostgresProxy(postgres_server.port, lambda sql: fault if "INSERT" in sql else ProxyFault.NONE) as proxy:
            client = postgres_server.connect(port=proxy.port)
            assert client.execute("SELECT 1").fetchone() == (1,)
            with pytest.raises(psycopg.OperationalError):
                client.execute("INSERT INTO lost VALUES (1)")
        there = connection.execute("SELECT count(*) FROM lost").fetchone()
        assert there == (0 if fault is ProxyFault.RESET else 1,)
        connection.execute("DROP TABLE lost")
