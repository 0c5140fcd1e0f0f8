"""The PostgreSQL sink behind PgBouncer in its transaction mode: owners share one session of the server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from boatlift.dataflow.contracts import Committed, Outcome
from boatlift.errors import FencedError
from boatlift.testing.loopback import ReservedPort, wait_for
from boatlift.testing.postgres_server import PostgresServer
from connectors.conformance import context, put, rows_of, visible
from connectors.sink_cases import PostgresAppendCase, PostgresCase
from support.postgres import CONNINFO


@pytest.fixture
def pooler(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment names it; it has one session of the server for all clients."""
    with ReservedPort() as port, TemporaryDirectory() as made:
        folder = Path(made)
        user, password = (postgres_server.environment[name] for name in ("PGUSER", "PGPASSWORD"))
        (folder / "users.txt").write_text(f'"{user}" "{password}"\n')
        (folder / "pooler.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={postgres_server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port.number}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = users.txt\n"
            "pool_mode = transaction\ndefault_pool_size = 1\n"
        )
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program is not None, "install it: sudo apt-get install -y pgbouncer"
        as_user = []
        if os.geteuid() == 0:  # which it refuses
            for each in (folder, *folder.iterdir()):
                shutil.chown(each, "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        process = subprocess.Popen([*as_user, program, "pooler.ini"], cwd=folder, stderr=subprocess.PIPE)
        monkeypatch.setenv("PGPORT", str(port.number))
        try:
            wait_for(_answers, "the pooler")
            yield
        finally:
            process.kill()
            process.communicate()


def _answers() -> bool | None:
    try:
        psycopg.connect(CONNINFO).close()
    except psycopg.OperationalError:
        return None
    return True


@pytest.mark.parametrize("case", [PostgresCase, PostgresAppendCase])
def test_owners_that_share_one_session_write_each_step_once(
    pooler: None, case: type[PostgresCase], tmp_path: Path
) -> None:
    folder = tmp_path / "place"
    older, newer = case.make(folder), case.make(folder)
    older.open(context(1))
    for step in range(3):
        assert put(older, folder, step) is Outcome.APPENDED
    assert newer.open(context(2)) == Committed(2, len(rows_of(2)), "digest 2")
    with pytest.raises(FencedError, match=r"\[FENCED\]"):
        put(older, folder, 3)
    for step in range(2, 5):
        assert put(newer, folder, step) is (Outcome.DROPPED if step == 2 else Outcome.APPENDED)
    assert case.read(folder) == visible(newer, 5)
    assert list(newer.verify()) == []
    for sink in (older, newer):
        sink.close()
