"""A store of yesterday takes the program of today: what is recorded of each operator stays as it was.

`recorded_program.json` is the record of an earlier version, without hashes, which depend on Python and Spark.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.spark.compile.program import compile_program
from boatlift.storage.records.renaming import Renaming
from operators.laws import SCHEMA, all_cases, dataflow_of, write_rows

HASHES = {"plan", "code", "written", "layout"}
RECORDED = json.loads(Path(__file__).with_name("recorded_program.json").read_text(encoding="utf-8"))


def every_operator() -> bl.Dataflow:
    flow = dataflow_of(all_cases())
    rows = flow.source("others", bl.files("rows", format="parquet", schema=SCHEMA))
    timed = rows.transform("t", lambda df: df.selectExpr("k", "v", "timestamp_seconds(60 * v) AS at"))
    timely = timed.with_watermark("w", "at", "1 hour")
    timely.sink("w-out", bl.parquet("out/w"))
    timely.late_rows("late").sink("late-out", bl.parquet("out/late"))
    cut = flow.sql("cut", "SELECT * FROM t WHERE at > now() - INTERVAL 1 HOUR")
    cut.sink("cut-out", bl.parquet("out/cut"))
    return flow


def identity_of(spark: SparkSession, flow: bl.Dataflow) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the identity of a program, and the processors that have another name than before, with that name."""
    program = compile_program(spark, plan(flow), ON_SPARK)
    program.close()
    return json.loads(json.dumps(program.identity)), dict(program.plan.was)


def test_under_other_names_each_operator_is_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(seed=1)
    flow = every_operator()
    before, _ = identity_of(spark, flow)
    named = "|".join(sorted(map(re.escape, flow.processors), key=len, reverse=True))
    in_text = re.compile(rf"(?<![\w.'-])(`?)({named})\1(?![\w-])")
    add, add_view, sql = bl.Dataflow.add, bl.Dataflow.add_view, bl.Dataflow.sql

    def renamed(name: str) -> str:
        return name if name.endswith("2") else f"{name}2"

    def under_others(flow: Any, name: str, reads: tuple[str, ...], *given: Any, **options: Any) -> Any:
        return add_view(flow, name, tuple(map(renamed, reads)), *given, **options)

    def queried(flow: Any, name: str, query: str, **options: Any) -> Any:
        return sql(flow, name, in_text.sub(r"`\g<2>2`", query), **options)

    monkeypatch.setattr(
        bl.Dataflow, "add", lambda flow, made, *beside: add(flow, replace(made, name=renamed(made.name)), *beside)
    )
    monkeypatch.setattr(bl.Dataflow, "add_view", under_others)
    monkeypatch.setattr(bl.Dataflow, "sql", queried)
    other = every_operator()
    other._was = {renamed(name): name for name in flow.processors}
    after, was = identity_of(spark, other)
    expected = Renaming({former: name for name, former in was.items()}).program(before)
    for identity in (expected, after):
        for about in identity.values():
            about.pop("written", None)  # the text of a query names streams
    assert after == expected


def test_the_recorded_program_is_that_of_yesterday(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(seed=1)
    program = compile_program(spark, plan(every_operator()), ON_SPARK)
    program.close()
    found: dict[str, Any] = {
        name: {key: value for key, value in about.items() if key not in HASHES}
        for name, about in program.identity.items()
    }
    assert json.loads(json.dumps(found)) == RECORDED
