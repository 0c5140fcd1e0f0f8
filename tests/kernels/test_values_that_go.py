"""The values of minima and maxima over changes go with their key, and no result shows it."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boatlift.errors import DataError
from boatlift.kernels.aggregate import AggregateColumn, AggregateNode, Layout
from boatlift.kernels.network.node import ZSet, concat
from boatlift.kernels.network.rows_of_keys import RecomputeKeysNode
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.opened import forget_runs, open_run
from kernels.node_laws import Rows, Tasks
from kernels.test_nodes_of_first_rows import Difference

TIME = pa.timestamp("us", "UTC")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = pa.schema([("k", pa.string()), ("at", TIME), ("v", pa.int64()), ("t", pa.string())])
LAYOUT = Layout(
    (("k", pa.string()), ("at", TIME)),
    (
        AggregateColumn("count_all", None, "n", None, pa.int64()),
        AggregateColumn("min", "v", "lv", pa.int64(), pa.int64()),
        AggregateColumn("max", "v", "gv", pa.int64(), pa.int64()),
        AggregateColumn("max", "t", "gt", pa.string(), pa.string()),
    ),
    weighted=True,
    ordered=True,
)
NODE = AggregateNode("p", LAYOUT, ("k", "at"), expiring=1)
EXPIRIES = {part: ExpiryColumn("keys" if part == "partials" else "rows", 1, later=1) for part in NODE.parts}
STEPS = 30


def aggregated(rows: Rows) -> Rows:
    """Return what the node computes, of all rows anew."""
    groups: dict[tuple[object, object], Rows] = {}
    for row, count in rows.items():
        groups.setdefault(row[:2], Counter())[row] += count
    result: Rows = Counter()
    for key, mine in groups.items():
        v, t = ([row[at] for row in mine if row[at] is not None] for at in (2, 3))
        result[(*key, mine.total(), min(v, default=None), max(v, default=None), max(t, default=None))] += 1
    return result


def at_millisecond(time: int) -> datetime:
    return BEGIN + timedelta(milliseconds=time)


def milliseconds(time: int) -> int:
    return int(at_millisecond(time).timestamp() * 1000)


@pytest.mark.parametrize("seed", range(8))
def test_minima_are_those_of_all_rows_and_their_values_go(tmp_path: Path, seed: int) -> None:
    """Law: also of rows at the bound, of rows that go within it, and of keys without a time, which stay."""
    chance = random.Random(seed)
    tasks = Tasks(NODE, [ROWS], tmp_path, tasks=chance.choice([1, 4]), seed=seed, expiries=EXPIRIES)
    every: Rows = Counter()
    bound = 0
    for _ in range(STEPS):
        change: Rows = Counter()
        for _ in range(chance.randrange(1, 7)):
            time = bound + chance.choice([0, 0, chance.randrange(8)])  # many at the bound
            at = None if chance.random() < 0.05 else at_millisecond(time)
            value = chance.choice([None, *range(6)])
            row = (chance.choice("ab"), at, value, None if value is None else "uvwxyz"[value] * chance.randrange(9))
            change[row] += chance.choice([1, 1, 2])
        for row in sorted(every, key=repr):
            if (row[1] is None or row[1] >= at_millisecond(bound)) and chance.random() < 0.4:
                change[row] -= chance.choice([1, every[row]])
        after = every + change
        bound += chance.choice([0, 0, 1, 1, 2, 5])
        found = tasks.take([change], milliseconds(bound))
        expected = aggregated(after)
        expected.subtract(aggregated(every))
        assert found == Counter({row: count for row, count in expected.items() if count})
        every = after
    without_time = {row for row in every if row[1] is None}
    for part in NODE.parts:
        tasks.passed = milliseconds(bound + 100)
        tasks.merge(part)
        rows = sum(run.rows for run, _ in tasks.runs[part])
        assert rows <= len(without_time), f"{part}: what has a time goes"
        assert rows or not any(row[2] is not None for row in without_time), f"{part}: what has none stays"


def test_values_of_a_key_that_never_expires_have_no_column_of_it() -> None:
    """A store of an aggregate without a bound is as it was."""
    kept = AggregateNode("p", LAYOUT, ("k", "at"))
    forms = {
        part: [len(codec.description["columns"]) for codec in (kept.parts[part], NODE.parts[part])]
        for part in kept.parts
        if part != "partials"
    }
    assert forms == {"min.0": [1, 2], "max.0": [1, 2], "max.1": [1, 2]}


class WithWhatComesAndGoes(Tasks):
    """Adds rows to each step that come as often as they go, as the general form gives them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.over: Rows = Counter()

    def _change(self, schema: pa.Schema, rows: Rows) -> ZSet:
        both = super()._change(schema, self.over)
        whole = concat([super()._change(schema, rows), both, ZSet(both.columns, -both.weights)])
        assert whole is not None
        return whole


class BeforeAndAfter(Tasks):
    """A node whose one result is the rows after a step, less those before it."""

    def __init__(self, node: RecomputeKeysNode, *args: Any, **options: Any) -> None:
        super().__init__(node, *args, **options)
        self.node = Difference(node)  # type: ignore[assignment]


ROW = ("a", at_millisecond(3), 5, "x")


def without_first_runs(tasks: Tasks) -> None:
    """Drop the run of the first step, as a merge that comes when its rows have expired."""
    for runs in tasks.runs.values():
        del runs[0]


def test_what_a_merge_has_left_of_a_key_that_is_over_is_not_read(tmp_path: Path) -> None:
    tasks = WithWhatComesAndGoes(NODE, [ROWS], tmp_path, expiries=EXPIRIES)
    tasks.take([Counter({ROW: 1})], milliseconds(0))
    tasks.take([Counter({ROW: -1})], milliseconds(2))
    without_first_runs(tasks)
    tasks.passed, tasks.over = milliseconds(50), Counter({ROW: 1})
    later = ("a", at_millisecond(60), 1, "y")
    assert tasks.take([Counter({later: 1})], milliseconds(50)) == Counter({("a", later[1], 1, 1, 1, "y"): 1})


def test_the_general_form_does_not_read_what_is_over(tmp_path: Path) -> None:
    """The key of its rows may have no time, and then they expire while the key is touched."""
    node = RecomputeKeysNode("p", "LEFT JOIN", (ROWS,), 1)
    taken = pa.schema([*ROWS, ("key", pa.string())])
    # Its two results, before and after, are looked at one by one.
    tasks = BeforeAndAfter(node, [taken], tmp_path, expiries={"0": ExpiryColumn("rows", 1, later=1)})
    tasks.take([Counter({(*ROW, "a"): 1})], milliseconds(0))
    tasks.take([Counter({(*ROW, "a"): -1})], milliseconds(2))
    without_first_runs(tasks)
    tasks.passed = milliseconds(50)
    later = ("a", at_millisecond(60), 1, "y")
    assert tasks.take([Counter({(*later, "a"): 1})], milliseconds(50)) == Counter({later: 1})


def test_values_that_were_kept_without_the_column_are_refused(tmp_path: Path) -> None:
    kept = Tasks(AggregateNode("p", LAYOUT, ("k", "at")), [ROWS], tmp_path)
    kept.take([Counter({ROW: 1})])
    forget_runs()
    ((run, path),) = kept.runs["min.0"]
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].*the version that wrote it, or begin with a new store"):
        open_run(path, run, codec=NODE.parts["min.0"])
