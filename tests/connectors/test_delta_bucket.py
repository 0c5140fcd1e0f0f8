"""The Delta sink in a bucket: a server that fails, pieces that it copies, and a dataflow that other readers read."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors import delta
from boatlift.connectors.delta.table import DeltaPlace
from boatlift.dataflow.contracts import Committed, Outcome
from boatlift.errors import InvalidError, UnavailableError
from boatlift.storage import bucket_client
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.tasks.stage import fresh_run
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from connectors.conformance import batch_of, context, ordered, put, rows_of, visible
from connectors.fault_laws import each_act_may_fail
from support.changes import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FAULTS = [each for each in ProxyFault if each is not ProxyFault.NONE]


@pytest.fixture
def proxy(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setattr("boatlift.storage.bucket_client.TIMEOUTS", ("5s", "5s"))
    with FaultProxy(object_server.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        yield proxy


def in_bucket(url: str) -> list[tuple[Any, ...]]:
    import os

    options = {"AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"], "AWS_ALLOW_HTTP": "true"}
    table = pa.table(DeltaTable(url, storage_options=options).to_pyarrow_dataset().to_table())
    return ordered(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("fault", [each for each in FAULTS if not each.name.startswith("HANGS")])
def test_steps_through_faults_are_there_once(
    proxy: FaultProxy, object_server: ObjectServer, fault: ProxyFault, tmp_path: Path
) -> None:
    """One request of seven fails, of whatever kind, also while owners follow one another.

    A torn list begins a commit anew, and a commit has some seven requests: these faults are fewer.
    """
    url, draws = object_server.url(tmp_path.name), random.Random(3)
    share = 1 / 19 if fault is ProxyFault.TORN else 1 / 7
    proxy.fault = lambda _method, _path: fault if draws.random() < share else ProxyFault.NONE
    for token in range(1, 4):
        sink = delta(url)
        newest = sink.open(context(token))
        last = 2 * token - 3
        assert newest == (None if last < 0 else Committed(last, len(rows_of(last)), f"digest {last}"))
        for step in (2 * token - 2, 2 * token - 1):
            assert put(sink, tmp_path, step) is Outcome.APPENDED
        assert put(sink, tmp_path, 0) is Outcome.DROPPED
    proxy.fault = lambda _method, _path: ProxyFault.NONE
    assert in_bucket(url) == visible(sink, 6)
    assert list(sink.verify()) == []


@pytest.mark.parametrize("uploads", [True, False])
def test_the_server_copies_pieces_that_it_has(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uploads: bool
) -> None:
    import obstore

    put, sent = obstore.put, []

    def told(store: Any, name: str, *given: Any, **named: Any) -> Any:
        sent.append(name)
        return put(store, name, *given, **named)

    options = BucketOptions(uploads_scratch=uploads)
    store = ObjectStore.open(object_server.url(f"{tmp_path.name}-store"), tmp_path / "scratch", options, create=True)
    store.scratch(1)
    url = object_server.url(tmp_path.name)
    sink = delta(url)
    sink.open(context())
    staged = [sink.stager().stage(str(store.scratch(1)), fresh_run(1), 0, iter([batch_of(rows_of(0))]))]
    monkeypatch.setattr(obstore, "put", told)
    assert sink.commit(0, len(rows_of(0)), "digest 0", staged) is Outcome.APPENDED
    assert sum(name.startswith("part-") for name in sent) == (0 if uploads else 1)
    assert in_bucket(url) == visible(sink, 1)
    assert list(sink.verify()) == []


@pytest.mark.parametrize("fault", [each for each in FAULTS if not each.name.startswith("HANGS")])
def test_pieces_that_the_server_copies_come_once_through_faults(
    proxy: FaultProxy, object_server: ObjectServer, fault: ProxyFault, tmp_path: Path
) -> None:
    options, draws = BucketOptions(uploads_scratch=True), random.Random(5)
    store = ObjectStore.open(object_server.url(f"{tmp_path.name}-store"), tmp_path / "scratch", options, create=True)
    url = object_server.url(tmp_path.name)
    sink = delta(url)
    sink.open(context())
    proxy.fault = lambda method, path: (
        fault if "part-" in path and draws.random() < 0.5 and method == "PUT" else ProxyFault.NONE
    )
    for step in range(4):
        rows = rows_of(step)
        staged = [
            sink.stager().stage(str(store.scratch(1)), fresh_run(1), number, iter([batch_of(part)]))
            for number, part in enumerate((rows[:20], rows[20:]))
        ]
        for piece in staged:
            Path(piece.place).unlink()  # as on another machine
        assert sink.commit(step, len(rows), f"digest {step}", staged) is Outcome.APPENDED
        assert not any(Path(piece.place).exists() for piece in staged), "the driver fetches no piece"
    proxy.fault = lambda _method, _path: ProxyFault.NONE
    assert in_bucket(url) == visible(sink, 4)
    assert list(sink.verify()) == []


def test_a_piece_that_is_gone_is_reported(object_server: ObjectServer, tmp_path: Path) -> None:
    options = BucketOptions(uploads_scratch=True)
    store = ObjectStore.open(object_server.url(f"{tmp_path.name}-store"), tmp_path / "scratch", options, create=True)
    for place in (object_server.url(tmp_path.name), str(tmp_path / "table")):
        sink = delta(place)
        sink.open(context())
        staged = [sink.stager().stage(str(store.scratch(1)), fresh_run(1), 0, iter([batch_of(rows_of(0))]))]
        Path(staged[0].place).unlink()
        store.delete(f"runs/{Path(staged[0].place).name}")
        with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] .*run again to stage"):
            sink.commit(0, len(rows_of(0)), "digest 0", staged)


@pytest.mark.parametrize("fault", [ProxyFault.REFUSED, ProxyFault.REFUSED_AFTER, ProxyFault.RESET_AFTER])
def test_each_request_may_fail_and_steps_are_there_once(
    proxy: FaultProxy, object_server: ObjectServer, fault: ProxyFault, tmp_path: Path
) -> None:
    url = object_server.url(tmp_path.name)

    def decides(what: Callable[[], ProxyFault]) -> None:
        proxy.fault = lambda _method, _path: what()

    each_act_may_fail(lambda: delta(url), tmp_path, decides, fault, lambda: in_bucket(url))


def test_a_server_that_is_away_for_some_seconds_is_waited_for(object_server: ObjectServer, tmp_path: Path) -> None:
    sink = delta(object_server.url(tmp_path.name))
    sink.open(context())
    object_server.kill()
    back = threading.Timer(6.0, object_server.restart)
    back.start()
    try:
        assert put(sink, tmp_path, 0) is Outcome.APPENDED
    finally:
        back.join()
    assert in_bucket(object_server.url(tmp_path.name)) == visible(sink, 1)


def test_a_server_that_goes_while_the_ledger_is_read_is_reported(
    proxy: FaultProxy, object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_client, "RETRY_FOR", 1.0)
    newest = DeltaPlace.newest

    def away(self: DeltaPlace, name: str) -> int | None:
        if not name.endswith("/owner"):
            proxy.fault = lambda _method, _path: ProxyFault.REFUSED
        return newest(self, name)

    sink = delta(object_server.url(tmp_path.name))
    sink.open(context())
    put(sink, tmp_path, 0)
    monkeypatch.setattr(DeltaPlace, "newest", away)
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] reading the table .* failed: .*; run again"):
        put(sink, tmp_path, 1)
    proxy.fault = lambda _method, _path: ProxyFault.NONE
    monkeypatch.setattr(DeltaPlace, "newest", newest)
    assert sink.open(context(2)) == Committed(0, len(rows_of(0)), "digest 0")
    assert put(sink, tmp_path, 1) is Outcome.APPENDED


def test_wrong_places_and_credentials_are_reported(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidError, match=r"\[STORE_NOT_FOUND\] there is no bucket elsewhere"):
        delta("s3://elsewhere/x").open(context())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mistyped")
    with pytest.raises(InvalidError, match=r"\[NOT_ADMITTED\]") as told:
        delta(object_server.url(tmp_path.name)).open(context())
    assert "mistyped" not in str(told.value)


def test_a_dataflow_writes_to_it_and_other_readers_read_it(
    object_server: ObjectServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "scratch"))
    places = ("table", object_server.url(f"{tmp_path.name}/table"))
    for number in range(4):
        write(tmp_path, number)

    def flow() -> bl.Dataflow:
        made = bl.Dataflow("lake")
        rows = made.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
        rows.sink("rows_out", bl.delta(places[1]))
        rows.group_by("k").agg("sums", F.sum("v").alias("total")).sink("changes", bl.delta(places[0]))
        return made

    bl.run(flow(), "store", available_now=True, spark=spark)
    write(tmp_path, 4)
    bl.run(flow(), "store", available_now=True, spark=spark)
    read = duckdb.sql("SELECT k, v FROM read_csv('in/*.csv')").fetchall()
    assert in_bucket(places[1]) == ordered(read)
    changes = pa.table(DeltaTable(places[0]).to_pyarrow_dataset().to_table())
    sums = duckdb.sql("SELECT k, total FROM changes GROUP BY ALL HAVING sum(_weight) > 0").fetchall()
    assert ordered(sums) == ordered(
        duckdb.sql("SELECT k, sum(v)::LONG FROM read_csv('in/*.csv') GROUP BY k").fetchall()
    )
    assert changes.num_rows > len(sums)
