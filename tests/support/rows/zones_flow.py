"""A dataflow in which moments go through every boundary to Python; the sinks of `out/` have `m LONG` and TIMESTAMPs.

Run as a program, in a folder with `in/*.csv` of `m LONG`, microseconds since 1970. It writes `out/`, `texts.db` and
`called.txt`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import TimestampType

import boatlift as bl

__all__ = ["DEFAULT", "MOMENTS", "PANDAS"]

OUTPUT = "m LONG, b TIMESTAMP"
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what functions get is without a zone
DEFAULT = datetime(2026, 10, 25, 2, 30)  # noqa: DTZ001 - comes twice in Berlin

MOMENTS = {
    "0001-01-01T00:00:00.000000": "the first that Python has",
    "0001-01-02T03:04:05.000006": "",
    "1582-10-10T12:00:00.000000": "on none of the days that Java's old calendar has",
    "1893-03-31T23:10:00.000000": "Berlin leaves its local mean time",
    "1899-12-31T23:59:59.999999": "",
    "1969-12-31T23:59:59.999999": "",
    "1970-01-01T00:00:00.000000": "",
    "2011-12-30T12:00:00.000000": "a day that Apia has not",
    "2026-03-29T01:30:00.000000": "in the gap of Berlin's spring, taken for local time",
    "2026-03-29T02:30:00.000000": "",
    "2026-10-25T00:30:00.000000": "02:30 in Berlin",
    "2026-10-25T01:30:00.000000": "02:30 in Berlin again",
    "2026-11-01T03:30:00.000000": "01:00 in St. John's",
    "2026-11-01T04:30:00.000000": "01:00 in St. John's again",
    "2038-01-19T03:14:08.000001": "",
    "9999-12-31T23:59:59.999999": "the last that Python has",
}

PANDAS = [at for at in MOMENTS if "1677-09-22" < at < "2262"]
"""What fits the nanoseconds of pandas, as Spark makes its frames."""


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def numbers(texts: Iterable[str]) -> list[int]:
    return [micros(datetime.fromisoformat(text)) for text in texts]


def literal() -> Column:
    times = [datetime.fromisoformat(text) for text in MOMENTS]
    chosen = [F.when(F.col("m") == micros(at), at if at.year % 2 else at.replace(tzinfo=UTC)) for at in times]
    return F.coalesce(*chosen)


@F.pandas_udf(TimestampType())
def in_pandas(values: pd.Series) -> pd.Series:
    return values + pd.Timedelta(0)


@F.arrow_udf(TimestampType())
def in_arrow(values: pa.Array) -> pa.Array:
    return values


def same(value: Any) -> Any:
    return value


def kept(key: Any, rows: Any, state: Any, context: Any) -> Iterator[Any]:
    """At the second step of a key the times of the first come out of the state."""
    for row in rows:
        if state.at is None:
            state.at, state.many = row.at, [row.at, row.at.replace(tzinfo=UTC)]
        else:
            assert state.first == DEFAULT
            assert key.at == row.at
            assert abs(row.now - context.now) < timedelta(minutes=1)
            assert state.many[0] == state.many[1] == state.at
            yield row.m, state.at


def remind(key: Any, rows: Any, _state: Any, context: Any) -> Iterator[Any]:
    if context.timer is not None:
        yield key.m, context.timer
    for row in rows:
        context.set_timer(row.at)


class Kept(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.at = handle.getValueState("at", "at TIMESTAMP")

    def handleInputRows(self, _key: Any, rows: Any, _times: Any) -> Iterator[Any]:  # noqa: N802
        for row in rows:
            if self.at.exists():
                yield row.m, self.at.get()[0]
            self.at.update((row.at,))


class Passing(bl.StatefulOperator):
    def process(self, rows: pa.Table) -> pa.Table:
        return pa.table({"m": rows["m"], "b": rows["at"]})

    def get_state(self) -> bytes:
        return b""

    def set_state(self, _state: bytes) -> None: ...

    def get_delta(self) -> bytes:
        return b""

    def apply_delta(self, _delta: bytes) -> None: ...


def passing(batch: bl.KeyedBatch) -> bl.Processed:
    return bl.Processed(pa.table({"m": batch.rows["m"], "b": batch.rows["at"]}))


def told(rows: pa.Table, step: int) -> None:
    with Path(CALLED).open("a", encoding="utf-8") as file:
        times = [at.astimezone(UTC).replace(tzinfo=None) for at in rows["at"].to_pylist()]
        lines = zip(rows["m"].to_pylist(), map(micros, times), strict=True)
        file.writelines(f"{step} {m} {at}\n" for m, at in lines)


def functions(rows: DataFrame) -> DataFrame:
    return rows.select(
        "m",
        F.udf(same, "timestamp")("at").alias("udf"),
        F.udf(same, "timestamp", useArrow=False)("at").alias("pickled"),
        F.udf(same, "array<timestamp>")(F.array("at"))[0].alias("nested"),
        in_pandas(F.when(F.col("m").isin(numbers(PANDAS)), F.col("at"))).alias("pandas"),
        in_arrow("at").alias("arrow"),
        F.timestamp_micros(bl.call(micros, "at", returns="long")).alias("call"),
        F.when(F.udf(lambda _: time.strftime("%z"))("m") == "+0000", F.col("at")).alias("zone"),
        literal().alias("literal"),
    )


CALLED = str(Path("called.txt").absolute())


def flow() -> bl.Dataflow:
    made = bl.Dataflow("zones")
    source = made.source("source", bl.files("in/*.csv", schema="m LONG"))
    rows = source.transform(
        "rows", lambda df: df.select("m", F.timestamp_micros("m").alias("at"), bl.now().alias("now"))
    )

    rows.transform("functions", functions, deterministic=False).sink("functions_out", bl.parquet("out/functions"))
    state = {"state": "at TIMESTAMP, many ARRAY<TIMESTAMP>, first TIMESTAMP", "defaults": {"first": DEFAULT}}
    processed = rows.group_by("m", "at").process("kept", kept, output=OUTPUT, **state)
    processed.sink("kept_out", bl.parquet("out/kept"))
    processed.sink("texts", bl.sqlite("texts.db", table="texts", key=["m"]))
    grouped = rows.group_by("m")
    grouped.process_arrow("tables", passing, output=OUTPUT).sink("tables_out", bl.parquet("out/tables"))
    grouped.custom("custom", Passing(), output=OUTPUT).sink("custom_out", bl.parquet("out/custom"))
    stateful = grouped.transform_with_state("stateful", Kept(), OUTPUT, "None")
    stateful.sink("stateful_out", bl.parquet("out/stateful"))
    timely = rows.with_watermark("timely", "at", "1 minute").group_by("m")
    timers = timely.process("timers", remind, output=OUTPUT, timers="event")
    timers.sink("timers_out", bl.parquet("out/timers"))
    rows.sink("called", bl.foreach(told))
    return made


if __name__ == "__main__":
    Path("in").mkdir()
    lines = "".join(f"{number}\n" for number in numbers(MOMENTS))
    for step in range(2):
        Path(f"in/{step}.csv").write_text(f"m\n{lines}", encoding="utf-8")
    session = bl.session(sys.argv[1] if len(sys.argv) > 1 else "local[2,2]")
    bl.run(flow(), "store", spark=session, available_now=True)
