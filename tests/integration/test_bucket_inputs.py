"""A dataflow whose inputs and store are in a bucket: it runs, sets bad rows aside, changes, and outlives its server."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from support.buckets import bucket_of
from support.changes import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [(row % 5, row) for row in range(300)]


@pytest.fixture
def url(objects_for_tasks: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "scratch"))
    with chdir(tmp_path):
        yield objects_for_tasks.url(tmp_path.name)


def put(url: str, number: int, rows: list[tuple[int, int]], more: str = "") -> None:
    lines = "".join(f"{key},{value}\n" for key, value in rows)
    prefix = url.removeprefix("s3://boatlift/")
    obstore.put(bucket_of(f"{prefix}/in"), f"{number:03d}.csv", f"k,v\n{lines}{more}".encode())


def flow_of(url: str, factor: int = 1, **options: Any) -> bl.Dataflow:
    flow = bl.Dataflow("sums")
    source = bl.files(f"{url}/in/*.csv", schema="k INT, v LONG", max_bytes_per_step=500, **options)
    rows = flow.source("rows", source, bad_rows="dead_letters", retry_for="1 second")
    rows.bad_rows("bad").sink("letters", bl.parquet("letters"))
    sums = rows.group_by("k").agg("totals", F.sum(F.col("v") * factor).alias("total"), policy=bl.Lazy(every=2))
    sums.sink("answers", bl.sqlite("sums.db", table="totals", key=["k"]))
    return flow


def totals(rows: list[tuple[int, int]], factor: int = 1) -> list[tuple[int, int]]:
    return [(key, factor * sum(value for each, value in rows if each == key)) for key in range(5)]


def test_it_runs_and_sets_bad_rows_aside_and_changes(url: str, spark: SparkSession) -> None:
    put(url, 1, ROWS, "x,1\n")
    bl.run(flow_of(url), f"{url}/store", available_now=True, spark=spark)
    assert table("sums.db", "totals") == totals(ROWS)
    (letter,) = pq.read_table("letters").to_pylist()
    assert (letter["file"], letter["text"]) == ("001.csv", "x,1")
    plan = bl.evolution(flow_of(url, factor=2), f"{url}/store", spark=spark)
    bl.run(flow_of(url, factor=2), f"{url}/store", available_now=True, evolve=plan.id, spark=spark)
    assert table("sums.db", "totals") == totals(ROWS, 2)
    put(url, 2, [(0, 7)])
    bl.run(flow_of(url, factor=2), f"{url}/store", available_now=True, spark=spark)
    assert table("sums.db", "totals") == totals([*ROWS, (0, 7)], 2)


def test_a_change_over_an_object_that_was_overwritten_is_refused(url: str, spark: SparkSession) -> None:
    put(url, 1, ROWS)
    bl.run(flow_of(url), f"{url}/store", available_now=True, spark=spark)
    plan = bl.evolution(flow_of(url, factor=2), f"{url}/store", spark=spark)
    put(url, 1, [*ROWS[:-1], (4, 298)])
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\] .* put the originals back"):
        bl.run(flow_of(url, factor=2), f"{url}/store", available_now=True, evolve=plan.id, spark=spark)
    put(url, 1, ROWS)
    bl.run(flow_of(url, factor=2), f"{url}/store", available_now=True, evolve=plan.id, spark=spark)
    assert table("sums.db", "totals") == totals(ROWS, 2)


def test_a_server_of_inputs_that_goes_away_ends_the_run_and_the_next_one_goes_on(
    url: str, objects_for_tasks: ObjectServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boatlift.storage.bucket_client.RETRY_FOR", 0.5)
    put(url, 1, ROWS)
    with FaultProxy(objects_for_tasks.port) as proxy:
        endpoint = f"http://127.0.0.1:{proxy.port}"
        bl.run(flow_of(url, endpoint=endpoint), f"{url}/store", available_now=True, spark=spark)
        running = bl.start(flow_of(url, endpoint=endpoint), f"{url}/store", spark=spark)
        proxy.fault = lambda _method, _path: ProxyFault.REFUSED
        put(url, 2, [(0, 7)])
        with pytest.raises(bl.UnavailableError, match=r"\[INPUT_UNAVAILABLE\] .*: run again once it answers"):
            running.wait(120)
        proxy.fault = lambda _method, _path: ProxyFault.NONE
        bl.run(flow_of(url, endpoint=endpoint), f"{url}/store", available_now=True, spark=spark)
    assert table("sums.db", "totals") == totals([*ROWS, (0, 7)])
