"""The Parquet sink in a bucket beyond the laws of every sink: a server that fails, what it holds, what is refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors import parquet
from boatlift.connectors.parquet.bucket import ParquetBucketSink
from boatlift.dataflow.contracts import Committed, Outcome
from boatlift.errors import DataError, FencedError, InvalidError, UnavailableError
from boatlift.storage.object_store import ObjectStore
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from connectors.conformance import context, put, rows_of, visible
from connectors.fault_laws import each_act_may_fail
from connectors.sink_cases import ParquetBucketCase
from support.changes import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAULTS = [each for each in ProxyFault if each is not ProxyFault.NONE]


@pytest.fixture
def proxy(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "own scratch"))
    monkeypatch.setattr("boatlift.storage.bucket_client.TIMEOUTS", ("500ms", "500ms"))
    with FaultProxy(object_server.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        yield proxy


@pytest.mark.parametrize("fault", FAULTS)
def test_steps_through_faults_are_there_once(proxy: FaultProxy, fault: ProxyFault, tmp_path: Path) -> None:
    """Every fifth request of whatever kind fails, also while owners follow one another."""
    requests, folder = count(1), tmp_path / "place"
    proxy.fault = lambda _method, _path: fault if next(requests) % 5 == 0 else ProxyFault.NONE
    for token in range(1, 4):
        sink = parquet(ParquetBucketCase.url(folder))
        newest = sink.open(context(token))
        last = 2 * token - 3
        assert newest == (None if last < 0 else Committed(last, len(rows_of(last)), f"digest {last}"))
        for step in (2 * token - 2, 2 * token - 1):
            assert put(sink, tmp_path, step) is Outcome.APPENDED
        assert put(sink, tmp_path, 0) is Outcome.DROPPED
    proxy.fault = lambda _method, _path: ProxyFault.NONE
    assert ParquetBucketCase.read(folder) == visible(sink, 6)
    assert list(sink.verify()) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_each_request_may_fail_and_steps_are_there_once(proxy: FaultProxy, fault: ProxyFault, tmp_path: Path) -> None:
    folder = tmp_path / "place"

    def decides(what: Callable[[], ProxyFault]) -> None:
        proxy.fault = lambda _method, _path: what()

    each_act_may_fail(
        lambda: parquet(ParquetBucketCase.url(folder)), folder, decides, fault, lambda: ParquetBucketCase.read(folder)
    )


def test_an_owner_whose_put_lands_after_its_successors_claim_loses_it(
    proxy: FaultProxy, object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older owner waits in the middle of its PUT while its successor claims the place and commits."""
    folder, waits, goes_on = tmp_path / "place", threading.Event(), threading.Event()
    older, newer = (parquet(ParquetBucketCase.url(folder)) for _ in range(2))
    older.open(context(1))
    put(older, tmp_path, 0)

    def held_up(method: str, _path: str) -> ProxyFault:
        if method != "PUT" or goes_on.is_set():
            return ProxyFault.NONE
        waits.set()
        return ProxyFault.REFUSED  # and it is sent again

    proxy.fault = held_up
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(put, older, tmp_path, 1)
        assert waits.wait(60)
        with monkeypatch.context() as direct:
            direct.setenv("AWS_ENDPOINT_URL", object_server.environment["AWS_ENDPOINT_URL"])
            assert newer.open(context(2)) == Committed(0, len(rows_of(0)), "digest 0")
            assert put(newer, tmp_path, 1) is Outcome.APPENDED
        goes_on.set()
        with pytest.raises(FencedError, match=r"\[FENCED\] owner 2 has taken over"):
            late.result()
    assert ParquetBucketCase.read(folder) == visible(newer, 2)


def test_a_server_that_is_away_fails_the_commit_and_the_next_open_reports_it(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[ParquetBucketSink.__module__], "RETRY_FOR", 1.0)
    sink = parquet(ParquetBucketCase.url(tmp_path / "place"))
    sink.open(context(1))
    put(sink, tmp_path, 0)
    proxy.fault = lambda _method, _path: ProxyFault.REFUSED
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\]"):
            put(sink, tmp_path, 1)
    proxy.fault = lambda _method, _path: ProxyFault.NONE
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\].*failed before"):
        put(sink, tmp_path, 1)
    assert sink.open(context(1)) == Committed(0, len(rows_of(0)), "digest 0")
    assert put(sink, tmp_path, 1) is Outcome.APPENDED


@pytest.mark.usefixtures("proxy")
def test_a_file_gone_is_a_gap(tmp_path: Path) -> None:
    folder = tmp_path / "place"
    sink = parquet(ParquetBucketCase.url(folder))
    sink.open(context(1))
    for step in range(3):
        put(sink, tmp_path, step)
    ParquetBucketCase.objects(folder).delete("part-000000000002.parquet")
    with pytest.raises(DataError, match=r"\[SINK_GAP\] .* has part-000000000003.parquet but not part-000000000002"):
        parquet(ParquetBucketCase.url(folder)).open(context(2))
    assert {found.condition for found in sink.verify()} == {"SINK_GAP", "SINK_DAMAGED"}


@pytest.mark.usefixtures("object_server")
def test_places_that_are_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path))
    for place in ("s3://bucket", "s3://bucket/", "gs://bucket/x"):
        with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] a parquet sink cannot be at {place}"):
            parquet(place)
    with pytest.raises(InvalidError, match=r"\[STORE_NOT_FOUND\] there is no bucket elsewhere"):
        parquet("s3://elsewhere/x").open(context(1))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mistyped")
    with pytest.raises(InvalidError, match=r"\[NOT_ADMITTED\]"):
        parquet("s3://boatlift/x").open(context(1))


def test_a_dataflow_writes_to_it_and_other_readers_read_it(
    object_server: ObjectServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "scratch"))
    url = object_server.url(f"{tmp_path.name}/out")
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files(tmp_path / "in" / "*.csv", schema="k INT, v LONG", max_files_per_step=1))
    rows.group_by("k").agg("sums", F.sum("v").alias("total")).sink("out", bl.parquet(url))
    rows.sink("copy", bl.parquet(object_server.url(f"{tmp_path.name}/copy"), every="1 second"))
    for number in range(3):
        write(tmp_path, number)
        bl.run(flow, object_server.url(f"{tmp_path.name}/store"), available_now=True, spark=spark)
    fresh = bl.Dataflow("fresh")
    taken = fresh.source("rows", bl.files(tmp_path / "in" / "*.csv", schema="k INT, v LONG", max_files_per_step=1))
    taken.group_by("k").agg("sums", F.sum("v").alias("total")).sink("out", bl.parquet(tmp_path / "fresh"))
    bl.run(fresh, tmp_path / "store", available_now=True, spark=spark)
    objects = ObjectStore(url, tmp_path / "looking")
    found = pa.concat_tables(pq.read_table(pa.BufferReader(each)) for each in objects.read_all([*objects.list("")]))
    order = [(name, "ascending") for name in found.column_names]
    assert found.sort_by(order).equals(pq.read_table(tmp_path / "fresh").sort_by(order))
    copied = ObjectStore(object_server.url(f"{tmp_path.name}/copy"), tmp_path / "looking")
    assert sum(pq.read_table(pa.BufferReader(each)).num_rows for each in copied.read_all([*copied.list("")])) > 0
