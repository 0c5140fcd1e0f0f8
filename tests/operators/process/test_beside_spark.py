"""A `StatefulProcessor` gives here what it gives in Structured Streaming, on the same files."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
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
from boatlift.spark.jobs import planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


class BeginInRows(Basket):
    """With an initial state, in Rows."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        assert timerValues.getCurrentProcessingTimeInMs() == -1
        assert (initialState.k,) == tuple(key)
        n, x, d = self.total.get() or (0, 0.0, Decimal(0))
        self.total.update((n + initialState.n, x, d))
        self.last.appendValue((-initialState.n,))


class BeginInFrames(InFrames):
    """With an initial state, in pandas frames."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        assert timerValues.getCurrentProcessingTimeInMs() == -1
        for k, number in initialState[["k", "n"]].itertuples(index=False):
            assert (k,) == tuple(key)
            n, x, d = self.total.get() or (0, 0.0, Decimal(0))
            self.total.update((n + int(number), x, d))
            self.last.appendValue((-int(number),))


class Silence(StatefulProcessor):
    """Alarms by event time: a timer for each row, some of them set into the past, one cleared by a later row."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.rows = handle.getValueState("rows", "n LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        bound = timerValues.getCurrentWatermarkInMs()
        assert timerValues.getCurrentProcessingTimeInMs() > 0
        for row in sorted(rows, key=lambda row: row.v):
            (n,) = self.rows.get() or (0,)
            self.rows.update((n + 1,))
            at = int(row.at.timestamp() * 1000)
            self.handle.registerTimer(at + 60_000 if row.v % 3 else max(1, bound - 5_000))
            if row.v == 10:
                for timer in self.handle.listTimers():
                    self.handle.deleteTimer(timer)
        yield Row(k=key[0], what=f"rows {bound}", n=self.rows.get()[0], x=None)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        at, bound = expiredTimerInfo.getExpiryTimeInMs(), timerValues.getCurrentWatermarkInMs()
        assert at <= bound
        if at % 7 == 0:
            self.handle.registerTimer(bound + 30_000)
        yield Row(k=key[0], what=f"timer {at} {bound}", n=self.rows.get()[0], x=None)


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


def streamed(
    spark: SparkSession,
    folder: Path,
    form: str,
    processor: StatefulProcessor,
    *,
    event_time: bool = False,
    begin: DataFrame | None = None,
) -> list[Counter[Any]]:
    """Return the rows of each batch of Structured Streaming, a file a batch."""
    mode = "EventTime" if event_time else "None"
    batches: list[Counter[Any]] = []
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        frame = (
            spark.readStream.schema("k STRING, v LONG, at TIMESTAMP" if event_time else "k STRING, v LONG")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / "rows"))
        )
        grouped = (frame.withWatermark("at", "1 minute") if event_time else frame).groupBy("k")
        (
            getattr(grouped, form)(processor, OUTPUT, "Append", mode, None if begin is None else begin.groupBy("k"))
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


def begin_of(spark: SparkSession) -> DataFrame:
    """Return an initial state: of keys that have rows in the first step, in later ones, and in none."""
    return spark.createDataFrame([("key0", 3), ("key5", 1), ("key5", 4), ("other", 9)], "k STRING, n LONG")


@pytest.mark.parametrize(
    ("form", "ours", "processor"),
    [
        ("transformWithState", "transform_with_state", Basket),
        ("transformWithState", "transform_with_state", BeginInRows),
        ("transformWithStateInPandas", "transform_with_state_in_pandas", InFrames),
        ("transformWithStateInPandas", "transform_with_state_in_pandas", BeginInFrames),
    ],
)
def test_it_gives_the_rows_of_structured_streaming(
    spark: SparkSession,
    rows: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    ours: str,
    processor: Callable[[], StatefulProcessor],
) -> None:
    if processor is BeginInFrames:
        monkeypatch.setattr(planner, "ONE_TASK_BYTES", 0)  # rows and the initial state are divided among tasks
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    begin = begin_of(spark) if processor in (BeginInRows, BeginInFrames) else None
    expected = streamed(spark, rows, form, processor(), begin=begin)
    flow = bl.Dataflow("f")
    taken = flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG", max_files_per_step=1))
    grouped = None if begin is None else begin.groupBy("k")
    made = getattr(taken.group_by("k"), ours)("basket", processor(), OUTPUT, initial_state=grouped)
    made.sink("out", bl.parquet("out"))
    bl.run(flow, "store", available_now=True, spark=spark)
    steps = [
        Counter(tuple(row.values()) for row in ds.dataset(str(path), format="parquet").to_table().to_pylist())
        for path in sorted(Path("out").glob("*.parquet"))
    ]
    assert len(expected) == FILES
    for ours_of_step, theirs in zip(steps, expected, strict=True):
        assert ours_of_step - theirs == Counter()
        assert theirs - ours_of_step == Counter()


def test_an_initial_state_that_does_not_fit_is_refused(spark: SparkSession, rows: Path) -> None:
    del rows
    begin = begin_of(spark)
    faults: list[tuple[Any, str, str]] = [
        ([("a", 1)], "BAD_OPTION", "give a DataFrame with the columns of the key"),
        (spark.range(1), "SCHEMA_MISMATCH", "asks for k, which the initial state of basket does not have"),
        (begin.selectExpr("n AS k", "n"), "SCHEMA_MISMATCH", "basket groups by k string, and .* has k int64"),
        (begin_of(spark.newSession()), "BAD_PROCESSOR", "is of another session"),
    ]

    def build_and_run(begin: Any) -> None:
        flow = bl.Dataflow("f")
        taken = flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG"))
        made = taken.group_by("k").transform_with_state("basket", Basket(), OUTPUT, initial_state=begin)
        made.sink("out", bl.parquet("out"))
        bl.run(flow, "store", available_now=True, spark=spark)

    for given, condition, words in faults:
        with pytest.raises(bl.InvalidError, match=words) as refused:
            build_and_run(given)
        assert refused.value.condition == condition


def test_timers_in_event_time_are_those_of_structured_streaming(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without late rows: these are judged there by the bound of two batches before."""
    monkeypatch.chdir(tmp_path)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    Path("rows").mkdir()
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(2 * FILES):
        made = [
            {
                "k": f"key{(number + n * n) % 5}",
                "v": (n * 7 + number) % 11,
                "at": begin + timedelta(seconds=45 * number + n),
            }
            for n in range(12)
        ]
        types = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
        pq.write_table(pa.Table.from_pylist(made, types), f"rows/{number}.parquet")
        os.utime(f"rows/{number}.parquet", (10**9 + number, 10**9 + number))
    expected = streamed(spark, tmp_path, "transformWithState", Silence(), event_time=True)
    flow = bl.Dataflow("f")
    schema = "k STRING, v LONG, at TIMESTAMP"
    taken = flow.source("rows", bl.files("rows", format="parquet", schema=schema, max_files_per_step=1))
    timely = taken.with_watermark("timely", "at", "1 minute")
    timely.group_by("k").transform_with_state("silence", Silence(), OUTPUT, "EventTime").sink("out", bl.parquet("out"))
    bl.run(flow, "store", available_now=True, spark=spark)
    steps = [
        Counter(tuple(row.values()) for row in pq.read_table(path).to_pylist())
        for path in sorted(Path("out").glob("*.parquet"))
    ]
    assert sum(what.startswith("timer") for step in steps for _, what, *_ in step) > 10
    assert steps == expected[: 2 * FILES]
