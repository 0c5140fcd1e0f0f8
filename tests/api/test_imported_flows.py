"""A dataflow that a Python program imports runs as `boatlift run` runs it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import boatlift as bl
from boatlift.api.by_value import pickle_by_value
from boatlift.processes.on_demand import begin_when_needed, session_on_demand

FLOW = """
from pathlib import Path

import boatlift as bl
from pyspark.sql import functions as F

from at_tasks import LONGER, shared

NUMBER = F.count("*").alias("n")  # no task could import this module

def fare(k):
    return {"a": 1, "b": 2}[k]

priced = F.udf(fare, "INT")

def asked(k):
    return fare(k) * 10

def count(key, rows, state, context):
    state.n = (state.n or 0) + len(rows) * fare(key.k)
    yield key.k, state.n

def note(rows, step):
    with Path("noted").open("a") as file:
        file.write("".join(f"{k} {LONGER}\\n" for k in rows["k"].to_pylist()))

flow = bl.Dataflow("imported")
rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING"))
rows.group_by("k").agg("sums", NUMBER).sink("sums_out", bl.sqlite("out.db", table="sums", key=["k"]))
rows.transform("fares", lambda df: df.select("k", priced("k").alias("fare")), deterministic=True).sink(
    "fares_out", bl.sqlite("out.db", table="fares", key=["k"]))
rows.transform("answers", lambda df: df.select("k", bl.call(asked, "k", returns="INT").alias("answer")),
    deterministic=False).sink("answers_out", bl.sqlite("out.db", table="answers", key=["k"]))
rows.group_by("k").process("counted", count, state="n LONG", output="k STRING, n LONG").sink(
    "counted_out", bl.sqlite("out.db", table="counted", key=["k"]))
rows.group_by("k").process("shared", shared, state="n LONG", output="k STRING").sink(
    "shared_out", bl.sqlite("out.db", table="shared", key=["k"]))
rows.sink("noted", bl.foreach(note))
"""

AT_TASKS = """
import boatlift as bl
from pyspark.sql import functions as F

LONGER = "noted"
UNUSED = F.lit(1)

def shared(key, rows, state, context):
    yield (key.k + "!",)
"""

PROGRAM = """
import boatlift as bl
from imported_flow import flow
assert bl.Stream(flow, "fares").columns() == {"k": "string", "fare": "int"}
bl.run(flow, store="store", available_now=True)
"""


def held(folder: Path, table: str, columns: str = "k, n") -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / "out.db") as db:
        return sorted(db.execute(f"SELECT {columns} FROM {table}"))


@pytest.mark.spark
def test_functions_of_an_imported_module_reach_tasks_without_an_import(tmp_path: Path) -> None:
    (tmp_path / "imported_flow.py").write_text(FLOW)
    (tmp_path / "at_tasks.py").write_text(AT_TASKS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.csv").write_text("k\na\nb\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert held(tmp_path, "sums") == [("a", 1), ("b", 1)]
    assert held(tmp_path, "fares", "k, fare") == [("a", 1), ("b", 2)]
    assert held(tmp_path, "answers", "k, answer") == [("a", 10), ("b", 20)]
    assert held(tmp_path, "counted") == [("a", 1), ("b", 2)]
    assert held(tmp_path, "shared", "k") == [("a!",), ("b!",)]
    assert (tmp_path / "noted").read_text() == "a noted\nb noted\n"


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    yield
    SparkContext._active_spark_context = None


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("ask", [lambda: F.count("*"), lambda: F.lit(1), lambda: F.udf(len, LongType())("k")])
def test_functions_of_spark_begin_a_session_where_there_is_none(
    ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def session() -> None:
        raise LookupError("a session begins")

    monkeypatch.setattr("boatlift.processes.session.session", session)
    begin_when_needed()
    assert SparkSession.getActiveSession() is None, "to ask for one begins none"
    with pytest.raises(LookupError, match="a session begins"):
        ask()


@pytest.mark.usefixtures("no_session")
def test_a_session_that_the_user_makes_is_made_all_the_same() -> None:
    begin_when_needed()
    assert SparkSession.getActiveSession() is None
    assert SparkContext._active_spark_context is None
    begun: list[str] = []
    with session_on_demand(lambda: begun.append("begun")):
        SparkSession.getActiveSession()
    assert begun == ["begun"]


def test_tasks_import_all_other_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a module loads once, such as a model, is loaded once."""
    helpers, flows = ModuleType("helpers_of_tasks"), ModuleType("flows_of_tasks")
    for module in (helpers, flows):
        exec("def note(rows, step): ...", vars(module))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    flow = vars(flows)["flow"] = bl.Dataflow("mine")
    rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING"))
    for module in (helpers, flows):
        rows.sink(module.__name__, bl.foreach(vars(module)["note"]))
    before = cloudpickle.list_registry_pickle_by_value()
    pickle_by_value(flow)
    assert cloudpickle.list_registry_pickle_by_value() - before == {"flows_of_tasks"}
    cloudpickle.unregister_pickle_by_value(flows)
