"""Sinks of tables through faults: connections that are lost, servers that are killed, owners that are frozen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import pytest

from boatlift.connectors.databases import transactions
from boatlift.connectors.databases.sink import TableSink
from boatlift.dataflow.contracts import Outcome
from boatlift.errors import FencedError, UnavailableError
from boatlift.testing.fault_proxy import ProxyFault
from boatlift.testing.mysql_proxy import MysqlProxy
from boatlift.testing.postgres_proxy import PostgresProxy
from boatlift.testing.statement_proxy import StatementProxy
from connectors.conformance import context, put, visible
from connectors.database_cases import CASES, KEYED, Case, Server, kind_of
from connectors.fault_laws import Decides, acts_of_an_owner, digest, each_act_may_fail
from support.postgres import table_of

FAULTS = [
    ProxyFault.RESET, ProxyFault.RESET_AFTER, ProxyFault.TORN, ProxyFault.HANGS, ProxyFault.HANGS_AFTER,
]  # fmt: skip

PROXIES: dict[str, type[StatementProxy]] = {"postgres": PostgresProxy, "mysql": MysqlProxy}
PORTS = {"postgres": "PGPORT", "mysql": "MYSQL_TCP_PORT"}
ENDS = {
    "postgres": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%' "
    "AND pid <> pg_backend_pid()",
    "mysql": "SELECT concat('KILL ', id) FROM information_schema.processlist WHERE db LIKE 'test\\_%' "
    "AND id <> connection_id()",
}

keyed = pytest.mark.parametrize("case", KEYED, indirect=True)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    return case


@pytest.fixture
def server(request: pytest.FixtureRequest, case: Case) -> Server:
    found: Server = request.getfixturevalue(f"{kind_of(case)}_server")
    return found


def made(folder: Path, case: Case, statement_timeout: float = 5.0) -> TableSink:
    timeouts = {"lock_timeout": 0.2 if statement_timeout < 1 else 5.0, "statement_timeout": statement_timeout}
    return case.sink(table=table_of(folder), key=case.key, **timeouts)


@pytest.fixture
def proxy(server: Server, case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatementProxy]:
    """The environment names it; servers and clients wait for half a second only."""
    monkeypatch.setattr(transactions, "_GRACE", 0.2)
    with PROXIES[kind_of(case)](server.port) as proxy:
        monkeypatch.setenv(PORTS[kind_of(case)], str(proxy.port))
        yield proxy
        proxy.fault = lambda _: ProxyFault.NONE


def by_acts(proxy: StatementProxy) -> Decides:
    def decides(what: Callable[[], ProxyFault]) -> None:
        proxy.fault = lambda _statement: what()

    return decides


@pytest.mark.parametrize("fault", FAULTS)
def test_each_statement_may_fail_and_steps_are_there_once(
    proxy: StatementProxy, fault: ProxyFault, case: Case, tmp_path: Path
) -> None:
    each_act_may_fail(
        lambda: made(tmp_path, case, statement_timeout=0.3),
        tmp_path,
        by_acts(proxy),
        fault,
        lambda: case.read(tmp_path),
    )


@keyed
def test_a_lost_answer_of_a_commit_is_read_from_the_ledger(proxy: StatementProxy, case: Case, tmp_path: Path) -> None:
    sink = made(tmp_path, case)
    sink.open(context(1))
    put(sink, tmp_path, 0)
    commits: list[str] = []

    def loses_one(statement: str) -> ProxyFault:
        if statement != "COMMIT":
            return ProxyFault.NONE
        commits.append(statement)
        return ProxyFault.RESET_AFTER if len(commits) == 1 else ProxyFault.NONE

    proxy.fault = loses_one
    assert put(sink, tmp_path, 1) is Outcome.APPENDED
    assert len(commits) == 2
    assert case.on.query(f"SELECT count(*) FROM {case.steps}") == [(2,)]
    assert case.read(tmp_path) == visible(sink, 2)


@keyed
def test_an_owner_that_loses_its_connection_while_its_successor_comes_is_fenced(
    proxy: StatementProxy, server: Server, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = made(tmp_path, case)
    older.open(context(1))
    put(older, tmp_path, 0)
    waits, goes_on = threading.Event(), threading.Event()

    def held_up(statement: str) -> ProxyFault:
        if statement != "COMMIT" or goes_on.is_set():
            return ProxyFault.NONE
        waits.set()
        return ProxyFault.RESET

    proxy.fault = held_up
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(put, older, tmp_path, 1)
        assert waits.wait(60)
        with monkeypatch.context() as direct:
            direct.setenv(PORTS[kind_of(case)], str(server.port))
            newer = made(tmp_path, case)
            assert newer.open(context(2)) == digest(0)
            assert put(newer, tmp_path, 1) is Outcome.APPENDED
        goes_on.set()
        with pytest.raises(FencedError, match=r"\[FENCED\] owner 2 has taken over"):
            late.result()
    assert case.read(tmp_path) == visible(newer, 2)


@keyed
def test_a_server_that_is_away_fails_the_commit_and_the_next_open_reports_it(
    server: Server, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "RETRY_FOR", 0.5)
    sink = made(tmp_path, case)
    sink.open(context(1))
    put(sink, tmp_path, 0)
    server.kill()
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\].*run again once the server answers"):
        put(sink, tmp_path, 1)
    server.restart()
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\].*failed before"):
        put(sink, tmp_path, 1)
    assert sink.open(context(1)) == digest(0)
    assert put(sink, tmp_path, 1) is Outcome.APPENDED


@keyed
def test_a_server_that_comes_back_in_time_is_waited_for(server: Server, case: Case, tmp_path: Path) -> None:
    sink = made(tmp_path, case)
    sink.open(context(1))
    put(sink, tmp_path, 0)
    server.kill()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(put, sink, tmp_path, 1)
        assert not waiting.done()
        server.restart()
        assert waiting.result() is Outcome.APPENDED
    assert case.read(tmp_path) == visible(sink, 2)


@keyed
@pytest.mark.crash
@pytest.mark.parametrize("after", [False, True])
def test_the_server_is_killed_at_each_statement_and_steps_are_there_once(
    proxy: StatementProxy, server: Server, case: Case, after: bool, tmp_path: Path
) -> None:
    """The whole server dies by SIGKILL before or after a statement, and is started again."""
    count = acts_of_an_owner(lambda: made(tmp_path, case), tmp_path, by_acts(proxy))
    kills = 0
    for point in range(count):
        sink = made(tmp_path, case)
        left = [point]

        def kills_once(statement: str, left: list[int] = left) -> ProxyFault:
            left[0] -= 1
            if left[0] != -1:
                return ProxyFault.NONE
            if not after:
                server.kill()
            return ProxyFault.RESET_AFTER if after else ProxyFault.NONE

        proxy.fault, proxy.acted = kills_once, server.kill
        newest = 1 + point
        with ThreadPoolExecutor(1) as threads:

            def owner(sink: TableSink = sink, newest: int = newest) -> Outcome:
                held = sink.open(context(newest + 2))
                assert held == digest(newest)
                return put(sink, tmp_path, newest + 1)

            running = threads.submit(owner)
            while not running.done():
                if not server.running:
                    server.restart()
                    kills += 1
                wait([running], 0.02)
            assert running.result() is Outcome.APPENDED
        proxy.fault = lambda _: ProxyFault.NONE
        sink.close()
    assert kills == count
    assert case.read(tmp_path) == visible(sink, count + 2)
    assert list(sink.verify()) == []


@keyed
@pytest.mark.crash
def test_the_backend_is_killed_at_each_statement_and_steps_are_there_once(
    proxy: StatementProxy, server: Server, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator ends the session at each statement, while the client waits for its answer."""
    count = acts_of_an_owner(lambda: made(tmp_path, case), tmp_path, by_acts(proxy))
    ended = 0
    for point in range(count):
        sink = made(tmp_path, case)
        left = [point]

        def ends_once(statement: str, left: list[int] = left) -> ProxyFault:
            nonlocal ended
            left[0] -= 1
            if left[0] == -1:
                with monkeypatch.context() as direct:
                    direct.setenv(PORTS[kind_of(case)], str(server.port))
                    found = case.on.query(ENDS[kind_of(case)])
                    for (kill,) in found if kind_of(case) == "mysql" else ():
                        case.on.query(kill)
                ended += len(found)
            return ProxyFault.NONE

        proxy.fault = ends_once
        newest = 1 + point
        held = sink.open(context(newest + 2))
        assert held == digest(newest)
        assert put(sink, tmp_path, newest + 1) is Outcome.APPENDED
        proxy.fault = lambda _: ProxyFault.NONE
        sink.close()
    assert ended == count
    assert case.read(tmp_path) == visible(sink, count + 2)


@keyed
@pytest.mark.parametrize("fault", FAULTS[:3])
def test_each_statement_of_a_first_open_may_fail(
    proxy: StatementProxy, case: Case, fault: ProxyFault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first owner dies at a statement, with the tables half made; the next one goes on from there."""
    monkeypatch.setattr(transactions, "RETRY_FOR", 0.0)
    seen: list[str] = []
    proxy.fault = lambda statement: seen.append(statement) or ProxyFault.NONE
    first = made(tmp_path, case)
    first.open(context(1))
    first.close()
    proxy.fault = lambda _: ProxyFault.NONE
    failed = 0
    for point in range(len(seen)):
        case.on.query(f"DROP TABLE {table_of(tmp_path)}, {case.sinks}, {case.steps}")
        left = [point]

        def fails_once(statement: str, left: list[int] = left) -> ProxyFault:
            left[0] -= 1
            return fault if left[0] == -1 else ProxyFault.NONE

        proxy.fault = fails_once
        sink = made(tmp_path, case)
        with suppress(UnavailableError):
            sink.open(context(1))
            assert left[0] >= 0
        failed += left[0] < 0
        sink.close()
        proxy.fault = lambda _: ProxyFault.NONE
        successor = made(tmp_path, case)
        assert successor.open(context(2)) is None
        assert put(successor, tmp_path, 0) is Outcome.APPENDED
        assert case.read(tmp_path) == visible(successor, 1)
        assert list(successor.verify()) == []
        successor.close()
    assert failed == len(seen)
