"""A `StatefulProcessor` gives here what it gives in Structured Streaming, on the same files."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import boatlift as bl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTPUT = "k STRING, what STRING, n LONG, x FLOAT"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FILES = 4


class Basket(StatefulProcessor):
    """Values of types that round, a list and a map."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n LONG, x FLOAT, d DECIMAL(10,2)")
        self.last = handle.getListState("last", "v LONG")
        self.seen = handle.getMapState("seen", "v LONG", "n INT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        assert timerValues.getCurrentProcessingTimeInMs() == -1
        assert timerValues.getCurrentWatermarkInMs() == -1
        for row in sorted(rows, key=lambda row: row.v):
            n, x, d = self.total.get() or (0, 0.0, 0)
            self.total.update((n + 1, x + 0.1, Decimal(d) + Decimal("0.255")))
            if row.v % 5 == 0:
                self.last.clear()
                self.seen.removeKey((row.v + 1,))
            else:
                self.last.appendValue((row.v,))
                self.seen.updateValue((row.v,), ((self.seen.getValue((row.v,)) or (0,))[0] + 1,))
            if row.v == 7:
                self.last.put([(1,), (2,)])
                self.total.clear()
        total = self.total.get()
        yield Row(k=key[0], what="total", n=total and total[0], x=total and total[1])
        yield Row(k=key[0], what="decimal", n=total and int(total[2] * 100), x=None)
        yield Row(k=key[0], what=str([v for (v,) in self.last.get()]), n=None, x=None)
        yield Row(k=key[0], what=str(sorted(self.seen.iterator())), n=None, x=None)


class InFrames(Basket):
    """The same over pandas frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        frames = list(rows)
        pandas = sys.modules["pandas"]
        given = [Row(k=k, v=int(v)) for frame in frames for k, v in frame[["k", "v"]].itertuples(index=False)]
        made = list(super().handleInputRows(key, given, timerValues))
        yield pandas.DataFrame([row.asDict() for row in made], columns=["k", "what", "n", "x"])


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write files of rows, and go to their folder."""
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    for number in range(FILES):
        made = [(f"key{(number + n * n) % 7}", (n * 7 + number * 3) % 13) for n in range(40)]
        table = pa.table({"k": [k for k, _ in made], "v": pa.array([v for _, v in made], pa.int64())})
        pq.write_table(table, f"rows/{number}.parquet")
        os.utime(f"rows/{number}.parquet", (10**9 + number, 10**9 + number))  # Spark takes the oldest file first
    return tmp_path


def streamed(spark: SparkSession, folder: Path, form: str, processor: StatefulProcessor) -> list[Counter[Any]]:
    """Return the rows of each batch of Structured Streaming, a file a batch."""
    batches: list[Counter[Any]] = []
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        grouped = (
            spark.readStream.schema("k STRING, v LONG")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / "rows"))
            .groupBy("k")
        )
        (
            getattr(grouped, form)(processor, OUTPUT, "Append", "None")
            .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(lambda frame, _: batches.append(Counter(map(tuple, frame.collect()))))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
        spark.conf.unset("spark.sql.shuffle.partitions")
    return batches


@pytest.mark.parametrize(
    ("form", "ours", "processor"),
    [
        ("transformWithState", "transform_with_state", Basket),
        ("transformWithStateInPandas", "transform_with_state_in_pandas", InFrames),
    ],
)
def test_it_gives_the_rows_of_structured_streaming(
    spark: SparkSession, rows: Path, form: str, ours: str, processor: Callable[[], StatefulProcessor]
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    expected = streamed(spark, rows, form, processor())
    flow = bl.Dataflow("f")
    taken = flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG", max_files_per_step=1))
    getattr(taken.group_by("k"), ours)("basket", processor(), OUTPUT).sink("out", bl.parquet("out"))
    bl.run(flow, "store", available_now=True, spark=spark)
    steps = [
        Counter(tuple(row.values()) for row in ds.dataset(str(path), format="parquet").to_table().to_pylist())
        for path in sorted(Path("out").glob("*.parquet"))
    ]
    assert len(expected) == FILES
    for ours_of_step, theirs in zip(steps, expected, strict=True):
        assert ours_of_step - theirs == Counter()
        assert theirs - ours_of_step == Counter()
