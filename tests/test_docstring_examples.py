"""Every public function has an example in its docstring, and it runs: the dataflow that it builds is compiled."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import boatlift as bl
from boatlift.api.grouped import Grouped
from boatlift.dataflow import SinkSpec

FLIGHTS = "origin,arr_delay,at\nEWR,90,2026-01-01T10:00:00\nEWR,-5,2026-01-01T11:00:00\nJFK,61,2026-01-01T12:00:00\n"
SCHEMA = "origin STRING, arr_delay INT, at TIMESTAMP"


def public_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions of `bl` and `bl.kafka`, and the methods of dataflows and streams."""
    found = {f"bl.{name}": getattr(bl, name) for name in bl.__all__ if inspect.isfunction(getattr(bl, name))}
    found |= {"bl.kafka.source": bl.kafka.source, "bl.kafka.sink": bl.kafka.sink}
    for owner in (bl.Dataflow, bl.Stream, Grouped):
        methods = inspect.getmembers(owner, inspect.isfunction)
        found |= {f"{owner.__name__}.{name}": each for name, each in methods if not name.startswith("_")}
    return found


FUNCTIONS = public_functions()


def examples_of(name: str, names: dict[str, Any]) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(inspect.getdoc(FUNCTIONS[name]) or "", names, name, None, 0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_has_an_example(name: str) -> None:
    assert examples_of(name, {}).examples, f"{name} has no example: show a call of it in its docstring"


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if examples_of(name, {}).examples])
def test_an_example_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, request: pytest.FixtureRequest
) -> None:
    if name == "bl.store":
        request.getfixturevalue("object_server")
        monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/flights.csv").write_text(FLIGHTS)
    flow = bl.Dataflow("example")
    flights = flow.source("flights", bl.files("data/*.csv", schema=SCHEMA))
    clicks = flow.source("clicks", bl.push("user STRING"))
    legs = flow.source("legs", bl.generator({"a": "string(id)", "b": "string(id + 1)"}, rows_per_step=3, steps=1))
    names = {"flow": flow, "flights": flights, "legs": legs, "bl": bl, "F": F, "pa": pa, "np": np, "Path": Path}
    names |= {"Row": Row, "StatefulProcessor": StatefulProcessor, "__name__": "__main__"}
    examples = examples_of(name, names)
    if '"clicks"' in (examples.docstring or ""):
        clicks.sink("clicks_out", bl.parquet("clicks"))
    given, told = set(flow.processors), list[str]()
    doctest.DocTestRunner().run(examples, out=told.append, clear_globs=False)
    assert not told, "".join(told)
    read = {each for processor in flow.processors.values() for each in processor.reads}
    for loose in [each for each in flow.processors if each not in given | read]:
        if not isinstance(flow.processors[loose], SinkSpec):
            bl.Stream(flow, loose).sink(f"{loose}_out", bl.parquet(f"out/{loose}"))
    if flow.processors.keys() > given:
        bl.plan(flow, spark=spark)
