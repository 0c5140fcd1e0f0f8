"""Within a step, the rows of a file keep their order up to what shuffles them, whatever the number of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

import boatlift as bl
from boatlift.dataflow import plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, STEPS = 3, 2
SCHEMA = "f INT, n INT"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of several sizes, which Spark reads in several parts: some smaller than a part, none a multiple of it."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("csv", "json", "parquet", "more"):
        (folder / name).mkdir()
    for step in range(STEPS):
        for file in range(FILES):
            numbers, stem = range(4000 + 5000 * file), f"{step}-{file}"
            (folder / "csv" / f"{stem}.csv").write_text("f,n\n" + "".join(f"{file},{n}\n" for n in numbers))
            (folder / "more" / f"{stem}.csv").write_text("f,n\n" + "".join(f"{file + FILES},{n}\n" for n in numbers))
            lines = "".join(f'{{"f": {file}, "n": {n}}}\n' for n in numbers)
            (folder / "json" / f"{stem}.json").write_text(lines)
            table = pa.table({"f": pa.array([file] * len(numbers), pa.int32()), "n": pa.array(numbers, pa.int32())})
            pq.write_table(table, folder / "parquet" / f"{stem}.parquet", row_group_size=700)
    return folder


def flow_of(source: bl.Dataflow, data: Path, kind: str) -> bl.Stream:
    pattern = {"csv": "csv/*.csv", "json": "json/*.json", "parquet": "parquet/*.parquet", "more": "more/*.csv"}[kind]
    file_format = "csv" if kind == "more" else kind
    return source.source(
        f"{kind}_rows", bl.files(data / pattern, format=file_format, schema=SCHEMA, max_files_per_step=FILES)
    )


def forward(data: Path, kind: str, out: Path) -> bl.Dataflow:
    """Return a dataflow of rows that are read, united, merged and transformed in several jobs, without a shuffle."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("forward")
    rows, more = flow_of(flow, data, kind), flow_of(flow, data, "more")
    kept = rows.transform("kept", lambda df: df.where("n % 7 <> 3"), policy=bl.Eager())
    twice = kept.transform("twice", lambda df: df.withColumn("m", F.col("n") * 2), policy=bl.Eager())
    twice.sink("twice_out", bl.parquet(out / "twice"))
    kept.union("united", more).sink("united_out", bl.parquet(out / "united"))
    kept.merge("merged", more).sink("merged_out", bl.parquet(out / "merged"))
    return flow


def out_of_order(folder: Path) -> int:
    """Return how many rows of a step come before an earlier row of their file."""
    count = 0
    for path in folder.glob("*.parquet"):
        last: dict[int, int] = {}
        for row in pq.read_table(path, columns=["f", "n"]).to_pylist():
            count += row["n"] <= last.get(row["f"], -1)
            last[row["f"]] = row["n"]
    return count


@pytest.mark.spark
@pytest.mark.parametrize(("kind", "tasks"), [("csv", 1), ("csv", 4), ("json", 4), ("parquet", 4)])
def test_the_rows_of_a_file_keep_their_order(
    kind: str, tasks: int, data: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "defaultParallelism", property(lambda _self: tasks))
    parts = {"spark.sql.files.maxPartitionBytes": str(2**14), "spark.sql.files.openCostInBytes": "0"}
    try:
        for name, value in parts.items():
            spark.conf.set(name, value)
        read = spark.read.schema(SCHEMA).option("header", True).csv(str(data / "csv"))
        assert read.rdd.getNumPartitions() > STEPS * FILES, "files are not read in several parts"
        flow = forward(data, kind, tmp_path)
        bl.run(flow, store=tmp_path / "store", available_now=True, spark=spark)
    finally:
        for name in parts:
            spark.conf.unset(name)
    for name in ("twice", "united", "merged"):
        assert out_of_order(tmp_path / name) == 0, name
        assert sum(pq.read_metadata(path).num_rows for path in (tmp_path / name).glob("*.parquet")) > 0


def test_the_order_is_known_of_each_stream(tmp_path: Path) -> None:
    flow = bl.Dataflow("known")
    rows = flow_of(flow, tmp_path, "csv")
    clean = rows.transform("clean", lambda df: df)
    clean.sink("clean_out", bl.parquet(tmp_path / "clean"))
    pushes = flow.source("pushes", bl.push("f INT, n INT"))
    clean.merge("merged", pushes).sink("merged_out", bl.parquet(tmp_path / "merged"))
    clean.gather("gathered", policy=bl.Batch(epochs=5)).sink("gathered_out", bl.parquet(tmp_path / "gathered"))
    clean.group_by("f").process("walk", lambda *_: [], output="f INT", state="n INT").sink(
        "walk_out", bl.parquet(tmp_path / "walk")
    )
    within = {name: rows.ordered_within for name, rows in plan(flow).rows.items()}
    assert within == {
        "csv_rows": "file",
        "clean": "file",
        "pushes": "push",
        "merged": "file or push",
        "gathered": None,
        "walk": None,
    }
