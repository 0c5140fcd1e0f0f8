"""What the laws of operators are tested with: cases, one or more for each operator, and runs of all of them at once.

An operator takes part by a module `tests/operators/KIND/case.py` with `CASES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import boatlift as bl

__all__ = [
    "FILES",
    "SCHEMA",
    "OperatorCase",
    "all_cases",
    "changes_of",
    "dataflow_of",
    "rows_of",
    "run",
    "steps_of",
    "write_rows",
]

Row = tuple[tuple[str, Any], ...]
Rows = Counter[Row]
Steps = Sequence[Sequence[dict[str, Any]]]

SCHEMA = "k STRING, v LONG, x DOUBLE"
FILES = 5
FILE_ROWS = 12
EMPTY = 2
"""The number of the file without rows."""


@dataclass(frozen=True)
class OperatorCase:
    """A use of an operator.

    Attributes:
        name: The processor; its sink is `NAME-out`.
        build: Adds the operator to a dataflow that has the sources `rows` and `more`, and returns its stream.
        expected: What the result of all rows is, computed in plain Python.
        result: What of the steps of a sink is compared with it: the part that no division into steps changes.
        chosen: Whether the steps depend on a choice (arrival order, the end of an epoch), so that two undisturbed runs
            may have other steps.
    """

    name: str
    build: Callable[[bl.Stream, bl.Stream], bl.Stream]
    expected: Callable[[list[dict[str, Any]], list[dict[str, Any]]], Rows]
    result: Callable[[Steps], Rows]
    chosen: bool = False


def all_cases() -> list[OperatorCase]:
    """Return the cases of all operators."""
    folders = sorted(path.parent.name for path in Path(__file__).parent.glob("*/case.py"))
    return [case for folder in folders for case in import_module(f"operators.{folder}.case").CASES]


def rows_of(steps: Steps) -> Rows:
    """Return the rows of all steps."""
    return Counter(as_row(row) for step in steps for row in step)


def changes_of(steps: Steps) -> Rows:
    """Return the rows that hold after all steps of changes."""
    held: Rows = Counter()
    for step in steps:
        for row in step:
            bare = {name: value for name, value in row.items() if name != "_weight"}
            held[as_row(bare)] += row["_weight"]
    assert min(held.values(), default=0) >= 0, "a row was taken back that did not hold"
    return +held


def as_row(row: dict[str, Any]) -> Row:
    """Return a row as a value that can be counted."""
    return tuple(sorted(row.items()))


def write_rows(seed: int) -> list[dict[str, Any]]:
    """Write the files of two sources, and return the rows of one: both have the same, one of the files has none.

    The same rows are lines of CSV too, for sources of which some rows do not fit.
    """
    rows: list[dict[str, Any]] = []
    for number in range(FILES):
        count = 0 if number == EMPTY else FILE_ROWS
        made = [
            {"k": f"key{(seed + n * n) % 5}", "v": (n * 7 + number * 3 + seed) % 11 - 3, "x": (n % 4) / 4}
            for n in range(count)
        ]
        types = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64())])
        for source in ("rows", "more"):
            Path(source).mkdir(exist_ok=True)
            pq.write_table(pa.Table.from_pylist(made, types), f"{source}/part-{number}.parquet")
        write_lines(number, made)
        rows += made
    return rows


def write_lines(number: int, rows: list[dict[str, Any]]) -> None:
    """Write a file of CSV in which the rows with a negative number do not fit."""
    Path("lines").mkdir(exist_ok=True)
    lines = [f"{row['k']},{row['v'] if row['v'] >= 0 else 'minus'},{row['x']}" for row in rows]
    Path(f"lines/part-{number}.csv").write_text("\n".join(["k,v,x", *lines, ""]))


def dataflow_of(cases: Sequence[OperatorCase], *, files: int = 1) -> bl.Dataflow:
    """Return a dataflow with the operators of all cases, each with a sink of its own.

    Args:
        cases: The cases.
        files: How many files are one step.
    """
    flow = bl.Dataflow("laws")
    rows, more = (
        flow.source(name, bl.files(name, format="parquet", schema=SCHEMA, max_files_per_step=files))
        for name in ("rows", "more")
    )
    for case in cases:
        case.build(rows, more).sink(f"{case.name}-out", bl.parquet(f"out/{case.name}"))
    return flow


def run(spark: SparkSession, flow: bl.Dataflow, watch: Callable[[bl.Progress], None] = lambda _progress: None) -> None:
    """Run a dataflow until it has taken all files."""
    bl.run(flow, "store", available_now=True, spark=spark, on_progress=watch)


def steps_of(case: OperatorCase) -> list[list[dict[str, Any]]]:
    """Return what the sink of a case holds, step by step, each with its rows in one order."""
    paths = sorted(Path("out", case.name).glob("*.parquet"))
    return [sorted(pq.read_table(path).to_pylist(), key=repr) for path in paths]
