"""A processor whose state gets further columns: a store of the version before goes on, after a clean stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import boatlift as bl
from boatlift.spark.jobs.state_parts import StateParts
from boatlift.state import table
from support.rows.stepped_rows import rows_of, run, steps_of, write_steps

STEPS = [[{"k": key, "v": step, "at": None} for key in "aab"[: 1 + step % 3]] for step in range(12)]
Build = Callable[[bl.Stream], bl.Stream]
OFTEN = bl.Lazy(every=2)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _counted(rows: bl.Stream, policy: Any = OFTEN) -> bl.Stream:
    def count(key: Any, rows: Any, state: Any, _context: Any) -> Iterator[tuple[Any, ...]]:
        state.n = (state.n or 0) + len(rows)
        yield key.k, state.n, 0, ""

    output = "k STRING, n LONG, total LONG, note STRING"
    return rows.group_by("k").process("counts", count, state="n LONG", output=output, policy=policy)


def _totalled(rows: bl.Stream, policy: Any = OFTEN, **others: Any) -> bl.Stream:
    def total(key: Any, rows: Any, state: Any, _context: Any) -> Iterator[tuple[Any, ...]]:
        state.n = (state.n or 0) + len(rows)
        state.total += sum(row.v for row in rows)
        state.seen.append(len(rows))
        yield key.k, state.n, state.total, f"{state.note}{len(state.seen)}"

    declared = {
        "state": "total LONG, n LONG, note STRING, seen ARRAY<INT>",
        "defaults": {"total": 1000, "seen": []},
        "output": "k STRING, n LONG, total LONG, note STRING",
    }
    return rows.group_by("k").process("counts", total, policy=policy, **{**declared, **others})


def _totalled_over_arrow(rows: bl.Stream) -> bl.Stream:
    def total(batch: bl.KeyedBatch) -> bl.Processed:
        counts = [b - a for a, b in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)]
        n = [(old or 0) + new for old, new in zip(batch.state["n"].to_pylist(), counts, strict=True)]
        values, begin = batch.rows["v"].to_pylist(), batch.offsets.tolist()
        totals = [
            old + sum(values[begin[number] : begin[number + 1]])
            for number, old in enumerate(batch.state["total"].to_pylist())
        ]
        state = pa.table({"n": n, "total": totals})
        return bl.Processed(state.append_column("k", batch.keys["k"]).select(["k", "n", "total"]), state)

    return rows.group_by("k").process_arrow(
        "counts", total, state="n LONG, total LONG", defaults={"total": 1000}, output="k STRING, n LONG, total LONG"
    )


def _counted_over_arrow(rows: bl.Stream) -> bl.Stream:
    def count(batch: bl.KeyedBatch) -> bl.Processed:
        counts = [b - a for a, b in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)]
        n = [(old or 0) + new for old, new in zip(batch.state["n"].to_pylist(), counts, strict=True)]
        state = pa.table({"n": n})
        zeros = pa.array([0] * len(n))
        return bl.Processed(pa.table({"k": batch.keys["k"], "n": state["n"], "total": zeros}), state)

    return rows.group_by("k").process_arrow("counts", count, state="n LONG", output="k STRING, n LONG, total LONG")


def _counter() -> StatefulProcessor:
    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("count", "n LONG")

        def handleInputRows(self, key: Any, rows: Any, _timers: Any) -> Iterator[Row]:  # noqa: N802
            n = (self.count.get() or (0,))[0] + len(list(rows))
            self.count.update((n,))
            yield Row(k=key[0], n=n, total=0)

    return Counter()


def _totaller() -> StatefulProcessor:
    class Totaller(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("count", "n LONG, total LONG")
            self.seen = handle.getListState("seen", "v LONG")

        def handleInputRows(self, key: Any, rows: Any, _timers: Any) -> Iterator[Row]:  # noqa: N802
            values = [row.v for row in rows]
            n, total = self.count.get() or (0, None)
            total = (1000 if total is None else total) + sum(values)
            self.count.update((n + len(values), total))
            for value in values:
                self.seen.appendValue((value,))
            yield Row(k=key[0], n=n + len(values), total=total)

    return Totaller()


def _stateful(processor: StatefulProcessor) -> Build:
    return lambda rows: rows.group_by("k").transform_with_state(
        "counts", processor, "k STRING, n LONG, total LONG", policy=OFTEN
    )


VERSIONS: dict[str, tuple[Build, Build]] = {
    "by key": (_counted, _totalled),
    "over arrow": (_counted_over_arrow, _totalled_over_arrow),
    "StatefulProcessor": (_stateful(_counter()), _stateful(_totaller())),
}


def _run(spark: SparkSession, build: Build) -> None:
    flow = bl.Dataflow("grows")
    build(rows_of(flow)).sink("out", bl.parquet("out"))
    run(flow, spark)


@pytest.mark.parametrize("version", VERSIONS)
def test_new_columns_begin_with_their_defaults(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Law: a state that was written before has its values, and the defaults of new columns; also in merged runs."""
    before, after = VERSIONS[version]
    monkeypatch.setattr(table, "SINGLE", 1)
    merged: list[int] = []
    merge = StateParts._merged

    def watch(self: StateParts, part: str, codec: Any, runs: Any, *, oldest: bool) -> Any:
        merged.append(len(runs))
        return merge(self, part, codec, runs, oldest=oldest)

    monkeypatch.setattr(StateParts, "_merged", watch)
    write_steps(STEPS[:5])
    _run(spark, before)
    write_steps(STEPS[5:], "rest")
    for path in sorted(Path("rest").iterdir()):
        path.rename(f"rows/1{path.name}")
    _run(spark, after)
    assert merged, "runs of both versions are merged"
    counts = dict.fromkeys("ab", 0)
    totals = dict.fromkeys("ab", 1000)
    for number, step in enumerate(STEPS):
        expected = []
        for key in sorted({row["k"] for row in step}):
            values = [row["v"] for row in step if row["k"] == key]
            counts[key] += len(values)
            totals[key] += sum(values) if number >= 5 else 0
            expected.append((key, counts[key], totals[key] if number >= 5 else 0))
        found = sorted((row["k"], row["n"], row["total"]) for row in steps_of("out")[number])
        assert found == expected, number
    with pytest.raises(bl.DataError, match=r"\[PROGRAM_CHANGED\] the state of counts changes in"):
        _run(spark, before)


REFUSED: dict[str, tuple[Build, str]] = {
    "another type": (
        lambda rows: _totalled(rows, state="n INT, total LONG, note STRING, seen ARRAY<INT>"),
        r"changes in n \(bigint\), which is int now: .* give a column of another type another name",
    ),
    "a column less": (
        lambda rows: _totalled(rows, state="total LONG, note STRING, seen ARRAY<INT>"),
        r"changes in n \(bigint\), which is gone",
    ),
    "another default": (
        lambda rows: _totalled(rows, defaults={"total": 1, "n": 5, "seen": []}),
        r"changes in n \(bigint\), which is bigint = 5 now",
    ),
    "other rows": (lambda rows: _totalled(rows.transform("some", lambda df: df.where("v > 1"))), "counts changed"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_any_other_change_is_refused(spark: SparkSession, change: str) -> None:
    build, words = REFUSED[change]
    write_steps(STEPS[:1])
    _run(spark, _counted)
    with pytest.raises(bl.DataError, match=words) as refused:
        _run(spark, build)
    assert refused.value.condition == "PROGRAM_CHANGED"
    _run(spark, _counted)


def test_a_store_whose_steps_are_executed_again_is_refused(spark: SparkSession) -> None:
    write_steps(STEPS[:1])
    _run(spark, lambda rows: _counted(rows, bl.History()))
    with pytest.raises(bl.DataError, match=r"its policy History executes all of its steps again"):
        _run(spark, _totalled)


def test_a_store_that_was_not_stopped_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    write_steps(STEPS[:3])

    def failing(key: Any, rows: Any, state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        raise ValueError("no")

    flow_of = {"state": "n LONG", "output": "k STRING", "policy": OFTEN}
    with pytest.raises(bl.UserCodeError):
        _run(spark, lambda rows: rows.group_by("k").process("counts", failing, **flow_of))
    with pytest.raises(bl.DataError, match=r"the last run did not stop cleanly"):
        _run(
            spark, lambda rows: rows.group_by("k").process("counts", failing, **{**flow_of, "state": "n LONG, m LONG"})
        )


BAD = {
    "no such column": ({"m": 1}, r"defaults has 'm', and the state has n"),
    "no such value": ({"n": "one"}, r"the defaults \{'n': 'one'\} do not fit struct<n:bigint>"),
}


@pytest.mark.parametrize("fault", BAD)
def test_defaults_that_do_not_fit_are_refused(spark: SparkSession, fault: str) -> None:
    defaults, words = BAD[fault]
    write_steps(STEPS[:1])
    with pytest.raises(bl.InvalidError, match=words) as refused:
        _run(
            spark,
            lambda rows: rows.group_by("k").process("p", print, state="n LONG", defaults=defaults, output="k STRING"),
        )
    assert refused.value.condition == "BAD_PROCESSOR"
