"""What may follow what: every operator behind every kind of stream, compiled; the table of the guide is that result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.spark.compile.program import compile_program
from support.pages import ROOT

SCHEMA = "k STRING, v LONG, at TIMESTAMP"
PAGE = ROOT / "docs/guide/joins.md"
Build = Callable[[bl.Stream, bl.Stream], bl.Stream]
"""Makes a stream of one with a watermark, beside another."""

NEW, OWN, CHANGES, TABLE = "new rows", "new rows with times of their own", "changes", "whole tables"
STREAMS: dict[str, dict[str, Build]] = {
    NEW: {
        "a source": lambda rows, _: rows.dataflow.source("s2", _files("s2")).with_watermark("s", "at", "1 minute"),
        "a transform": lambda rows, _: rows.transform("s", lambda df: df.where("v > 1")),
        "`union`": lambda rows, more: rows.union("s", more),
        "`with_watermark`": lambda rows, _: rows.with_watermark("s", "at", "1 hour"),
        "`drop_duplicates`": lambda rows, _: rows.drop_duplicates("s", ["k"], within="1 minute"),
    },
    OWN: {
        "`lookup`": lambda rows, more: rows.lookup(
            "s0", t=more.group_by("k").agg("t", F.max("v").alias("m")).by("k")
        ).transform("s", lambda df: df.drop("t_m")),
        "`merge`": lambda rows, more: rows.merge("s", more),
        "`gather`": lambda rows, _: rows.gather("s", policy=bl.Batch(epochs=2)),
    },
    CHANGES: {
        "an aggregate": lambda rows, _: rows.group_by("k").agg("s", F.max("v").alias("v"), F.max("at").alias("at")),
        "a view": lambda rows, more: rows.dataflow.sql(
            "s", f"SELECT k, v, {rows.name}.at FROM {rows.name} JOIN {more.name} USING (k, v)"
        ),
        "`top_n`": lambda rows, _: rows.group_by("k").top_n("s", 2, order_by=["v DESC"]),
        "`recent`": lambda rows, _: rows.recent("s", "at", "1 hour"),
        "`changes`": lambda rows, _: rows.transform("s0", lambda df: df.selectExpr("k", "v", "at", "1 AS w")).changes(
            "s", weight="w"
        ),
        "a view of `merge`": lambda rows, more: rows.merge("s0", more).dataflow.sql(
            "s", "SELECT k, v, at FROM s0 WHERE v > 2"
        ),
    },
    TABLE: {"`recompute`": lambda rows, _: rows.recompute("s", lambda df: df, policy=bl.Batch(epochs=2), over="batch")},
}

READERS: dict[str, Build] = {
    "a transform": lambda s, _: s.transform("r", lambda df: df.select("k", "v")),
    "`group_by(…).agg(…)` of sums": lambda s, _: s.group_by("k").agg("r", F.sum("v").alias("v")),
    "a view, alone": lambda s, _: s.dataflow.sql("r", "SELECT DISTINCT k FROM s"),
    "a view of it and of others": lambda s, more: s.dataflow.sql(
        "r", f"SELECT k, count(*) AS n FROM s JOIN {more.name} USING (k) GROUP BY k"
    ),
    "`union`, `merge`": lambda s, more: s.transform("r0", lambda df: df.select("k")).union(
        "r", more.transform("r1", lambda df: df.select("k"))
    ),
    "`lookup`, as the rows": lambda s, more: s.lookup(
        "r", t=more.group_by("k").agg("r0", F.max("v").alias("m")).by("k")
    ),
    "`lookup`, as the table by its key": lambda s, more: more.lookup("r", s=s.by("k")),
    "windows": lambda s, _: s.group_by(bl.window("at", "1 minute")).agg("r", F.count("*").alias("n"), emit="final"),
    "`process`, `transform_with_state`": lambda s, _: s.group_by("k").process(
        "r", lambda k, rows, state, c: [], output="k STRING"
    ),
    "`drop_duplicates`": lambda s, _: s.drop_duplicates("r", ["k"]),
    "`top_n`": lambda s, _: s.group_by("k").top_n("r", 2, order_by=["v DESC"]),
    "`with_watermark`": lambda s, _: s.with_watermark("r", "at", "1 minute"),
    "`final`": lambda s, _: s.final("r", "at"),
    "`gather`": lambda s, _: s.gather("r", policy=bl.Batch(epochs=2)),
    "`recompute`": lambda s, _: s.recompute("r", lambda df: df, policy=bl.Batch(epochs=2), over="batch"),
}


def _files(name: str) -> bl.Source:
    Path(name).mkdir(exist_ok=True)
    return bl.files(name, format="parquet", schema=SCHEMA)


def _verdict(spark: SparkSession, stream: Build, reader: Build) -> str:
    flow = bl.Dataflow("follows")
    rows, more = (flow.source(name, _files(name), lateness={"at": "1 minute"}) for name in ("rows", "more"))
    try:
        made = reader(stream(rows, more), more)
        made.sink("out", bl.parquet("out"))
        rows.sink("rows_out", bl.parquet("rows_out"))
        more.sink("more_out", bl.parquet("more_out"))
        compile_program(spark, plan(flow), ON_SPARK).close()
    except bl.InvalidError as error:
        return str(error).partition(" ")[0]
    return "yes"


def test_the_table_of_what_may_follow_what_is_what_compiles(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"| behind | {' | '.join(STREAMS)} |", f"|---|{'---|' * len(STREAMS)}"]
    for name, reader in READERS.items():
        cells = []
        for streams in STREAMS.values():
            verdicts = {of: _verdict(spark, stream, reader) for of, stream in streams.items()}
            usual = max(set(verdicts.values()), key=list(verdicts.values()).count)
            others = [f"{of}: {verdict}" for of, verdict in verdicts.items() if verdict != usual]
            cells.append("; ".join([usual, *others]).replace("[", "`[").replace("]", "]`"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    kinds = [f"- *{kind}*: {', '.join(streams)}" for kind, streams in STREAMS.items()]
    table = "\n".join([*lines, "", *kinds])
    print(table)
    assert table in PAGE.read_text(encoding="utf-8"), f"put this into {PAGE.name}:\n{table}"
