"""A dataflow whose store is in an object store: run, shown, changed, taken back, taken over, and refused."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.runtime.host.points import change_points
from boatlift.storage.bucket_client import BucketClient
from boatlift.storage.opening import open_store
from boatlift.storage.verify import verify
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from support.changes import table, write
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def flow_of(name: str = "sums", factor: int = 1) -> bl.Dataflow:
    flow = bl.Dataflow(name)
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    sums = rows.group_by("k").agg("totals", F.sum(F.col("v") * factor).alias("total"), policy=bl.Lazy(every=2))
    sums.sink("answers", bl.sqlite(f"{name}.db", table="totals", key=["k"]))
    return flow


@pytest.fixture
def url(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "scratch"))
    with chdir(tmp_path):
        for number in range(3):
            write(tmp_path, number)
        yield object_server.url(tmp_path.name)


def test_it_changes_and_goes_back_and_another_machine_goes_on(
    url: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bl.run(flow_of(), url, available_now=True, spark=spark)
    first = table("sums.db", "totals")
    assert [*change_points(url, "point")]
    plan = bl.evolution(flow_of(factor=2), url, spark=spark)
    monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "another machine"))
    bl.run(flow_of(factor=2), url, available_now=True, evolve=plan.id, spark=spark)
    assert table("sums.db", "totals") == [(key, 2 * total) for key, total in first]
    write(tmp_path, 3)
    bl.run(flow_of(factor=2), bl.store(url, linger=0.05), available_now=True, spark=spark)
    back = bl.evolution(flow_of(), url, to="point", spark=spark)
    bl.rewind(flow_of(), url, to="point", evolve=back.id, spark=spark)
    assert table("sums.db", "totals") == first
    assert bl.status(url).dataflow == "sums"
    assert list(verify(open_store(url, create=False))) == []


def test_scratch_in_the_store_leaves_nothing_but_what_the_log_names(
    url: str, object_server: ObjectServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bl.run(flow_of("fresh"), tmp_path / "store", available_now=True, spark=spark)
    for machine, number in (("one", 3), ("another", 4), ("one", 5)):
        monkeypatch.setenv("BOATLIFT_SCRATCH", f"store:{tmp_path / machine}")
        bl.run(flow_of(), url, available_now=True, spark=spark)
        assert list(verify(open_store(url, create=False))) == []
        write(tmp_path, number)
    bl.run(flow_of(), url, available_now=True, spark=spark)
    bl.run(flow_of("fresh"), tmp_path / "store", available_now=True, spark=spark)
    assert table("sums.db", "totals") == table("fresh.db", "totals")
    assert list(verify(open_store(url, create=False))) == []
    left = BucketClient(object_server.url(tmp_path.name), object_server.environment["AWS_ENDPOINT_URL"], 30.0)
    until(lambda: left.sizes("scratch/") == {})


def test_the_bound_of_the_cache_reaches_workers(url: str, tmp_path: Path, spark: SparkSession) -> None:
    @F.udf(returnType="string")
    def bound(_: int) -> str | None:
        return os.environ.get("BOATLIFT_CACHE")

    flow = bl.Dataflow("bounds")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG"))
    told = rows.transform("told", lambda frame: frame.select(bound("k").alias("bound")), deterministic=True)
    told.sink("out", bl.parquet(tmp_path / "out"))
    bl.run(flow, bl.store(url, cache=98_765_432), available_now=True, spark=spark)
    assert {*pq.read_table(tmp_path / "out").column("bound").to_pylist()} == {"98765432"}


def test_a_dataflow_refuses_the_prefix_of_another_one(url: str, spark: SparkSession) -> None:
    bl.run(flow_of(), url, available_now=True, spark=spark)
    with pytest.raises(bl.DataError, match=r"\[STORE_OF_ANOTHER_DATAFLOW\]"):
        bl.run(flow_of("others"), url, available_now=True, spark=spark)
    assert not Path("others.db").exists() or table("others.db", "totals") == []


def test_a_run_that_is_taken_over_is_fenced(url: str, tmp_path: Path, spark: SparkSession) -> None:
    older = bl.start(flow_of(), url, spark=spark)
    with pytest.raises(bl.InvalidError, match=r"\[STORE_IN_USE\]"):
        bl.run(flow_of(), url, available_now=True, spark=spark)
    bl.run(flow_of(), url, available_now=True, take_over=True, spark=spark)
    with pytest.raises(bl.FencedError, match=r"\[FENCED\]"):
        older.wait(120)
    write(tmp_path, 3)
    bl.run(flow_of(), url, available_now=True, spark=spark)
    assert len(table("sums.db", "totals")) > 0


def test_a_server_that_goes_away_ends_the_run_and_the_next_one_goes_on(
    url: str, object_server: ObjectServer, tmp_path: Path, spark: SparkSession
) -> None:
    with FaultProxy(object_server.port) as proxy:
        store = bl.store(url, endpoint=f"http://127.0.0.1:{proxy.port}", scratch=tmp_path / "scratch", retry_for=1.0)
        running = bl.start(flow_of(), store, spark=spark)
        proxy.fault = lambda _method, _path: ProxyFault.REFUSED
        write(tmp_path, 3)
        with pytest.raises(bl.UnavailableError, match=r"\[STORE_FAILED\]"):
            running.wait(120)
    bl.run(flow_of(), url, available_now=True, spark=spark)
    undisturbed = table("sums.db", "totals")
    bl.run(flow_of("fresh"), tmp_path / "store", available_now=True, spark=spark)
    assert table("fresh.db", "totals") == undisturbed


def test_options_that_are_wrong(tmp_path: Path) -> None:
    for url, options, said in (
        ("store", {}, "url is 'store': give s3://BUCKET/PREFIX"),
        ("s3://bucket", {}, "give s3://BUCKET/PREFIX"),
        ("s3://bucket/x", {"retry_for": 0}, "retry_for is 0"),
        ("s3://bucket/x", {"linger": -1}, "linger is -1"),
        ("s3://bucket/x", {"linger": 61}, "linger is 61"),
        ("s3://bucket/x", {"patience": 3}, "retry_for"),
    ):
        with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\].*" + said):
            bl.store(url, **options)  # type: ignore[arg-type]
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] store=7: give a folder"):
        bl.run(flow_of(), 7)  # type: ignore[arg-type]


def test_pushed_rows_come_out_once_on_this_machine_and_on_another(
    url: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine, numbers in (("scratch", range(5)), ("another", range(5, 8))):
        monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / machine))
        flow = bl.Dataflow("orders")
        flow.source("pushed", bl.push("id LONG NOT NULL, item STRING")).sink("rows", bl.parquet("rows"))
        running = bl.start(flow, url, spark=spark)
        for number in numbers:
            flow.push("pushed", {"id": number, "item": "x"}, key=f"key {number}")
        running.stop()
    bl.run(flow, url, available_now=True, spark=spark)  # a stop leaves rows that are recorded to the next run
    found = pq.read_table("rows").to_pylist()
    assert sorted(row["id"] for row in found) == list(range(8))
