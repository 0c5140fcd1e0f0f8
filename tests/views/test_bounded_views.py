"""Views over streams with a lateness: their results are Spark's, and state goes that no change to come can meet."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.spark.jobs import planner
from boatlift.spark.jobs.state_parts import HeldRuns, StateParts
from boatlift.state import table
from boatlift.state.codec import KeyedRows
from boatlift.state.opened import open_run
from support.rows.event_time import BEGIN, SECOND, judged
from support.rows.stepped_rows import SCHEMA, Fields, rows_of, run, steps_of, write_steps

MINUTE = 60 * SECOND
OFTEN = bl.Lazy(every=3)
STEPS = 24

QUERIES = {
    "windows": "SELECT k, window.start AS s, window.end AS e, count(*) AS n, sum(v) AS v, count(DISTINCT v) AS d "
    "FROM timely GROUP BY k, window(at, '2 minutes')",
    "sliding": "SELECT window.end AS e, min(v) AS v, collect_set(k) AS ks FROM timely "
    "GROUP BY window(at, '3 minutes', '1 minute')",
    "distinct": "SELECT DISTINCT k, at FROM timely",
    "truncated": "SELECT date_trunc('minute', at) AS m, sort_array(collect_list(v)) AS v FROM timely "
    "GROUP BY date_trunc('minute', at)",
    "band": "SELECT l.k, l.at, l.v, r.at AS r_at, r.v AS w FROM timely l JOIN timely r ON l.k = r.k "
    "AND r.at BETWEEN l.at - INTERVAL 90 SECONDS AND l.at + INTERVAL 30 SECONDS WHERE l.v < 5",
    "two bands": "SELECT l.k, l.at, r.at AS r_at FROM timely l JOIN others r ON l.k = r.k "
    "AND r.at > l.at - INTERVAL 1 MINUTE AND r.at <= l.at + INTERVAL 1 MINUTE",
    "best": "SELECT * FROM (SELECT k, at, v, row_number() OVER (PARTITION BY window(at, '2 minutes') "
    "ORDER BY v DESC, at, k) AS rank FROM timely) WHERE rank <= 3",
    "outer": "SELECT l.k, l.at, l.v, r.v AS w FROM timely l LEFT JOIN (SELECT * FROM others WHERE v % 2 = 0) r "
    "ON l.at = r.at AND l.k = r.k",
    "semi": "SELECT k, at, v FROM timely WHERE (k, at) IN (SELECT k, at FROM others)",
    "left band": "SELECT l.k, l.at, l.v, r.at AS r_at, r.v AS w FROM timely l LEFT JOIN others r ON l.k = r.k "
    "AND r.at BETWEEN l.at - INTERVAL 60 SECONDS AND l.at + INTERVAL 10 SECONDS AND l.v < 15",
    "right band": "SELECT l.at, l.v, r.k, r.at AS r_at FROM timely l RIGHT JOIN others r ON l.k = r.k "
    "AND l.at BETWEEN r.at - INTERVAL 90 SECONDS AND r.at + INTERVAL 30 SECONDS",
    "full band": "SELECT l.k, l.at, r.k AS r_k, r.at AS r_at FROM timely l FULL JOIN others r ON l.k = r.k "
    "AND l.v > r.v AND r.at BETWEEN l.at - INTERVAL 30 SECONDS AND l.at + INTERVAL 60 SECONDS",
    "silent": "SELECT window.end AS e, count(*) AS n FROM timely l WHERE NOT EXISTS (SELECT 1 FROM others r "
    "WHERE l.k = r.k AND r.at BETWEEN l.at AND l.at + INTERVAL 40 SECONDS) GROUP BY window(at, '2 minutes')",
    "of a view": "SELECT window.end AS e, count(*) AS n FROM distinct GROUP BY window(at, '2 minutes')",
    "truncated join": "SELECT l.at, count(*) AS n FROM others l JOIN timely r "
    "ON date_trunc('MINUTE', l.at) + INTERVAL 1 MINUTE = r.at GROUP BY l.at",
    "static rows that change": "SELECT l.at, count(*) AS n FROM timely l JOIN (SELECT id FROM VALUES (1, 14), (2, 4), "
    "(3, 9), (4, 12), (5, 1), (6, 7) AS t(id, x) WHERE x > (SELECT 15 - count(*) / 12 FROM others)) d ON l.v = d.id "
    "GROUP BY l.at",
    "dates": "SELECT to_date(at) AS d, count(*) AS n FROM timely GROUP BY to_date(at)",
    "union": "SELECT DISTINCT k, at FROM (SELECT k, at FROM timely UNION ALL "
    "SELECT k, at - INTERVAL 1 MINUTE FROM others)",
}  # fmt: skip

MINIMA_AND_SESSIONS = {
    "extremes": "SELECT window.end AS e, k, min(n) AS least, max(n) AS most, max(at) AS last, count(DISTINCT n) AS d "
    "FROM (SELECT k, at, sum(v) AS n FROM timely GROUP BY k, at) GROUP BY k, window(at, '2 minutes')",
    "extremes of all": "SELECT min(n) AS least, max(at) AS last FROM "
    "(SELECT at, sum(v) AS n FROM timely GROUP BY at)",
    "extremes of partners": "SELECT date_trunc('minute', at) AS m, min(w) AS least FROM (SELECT l.at, "
    "coalesce(r.v, -1) AS w FROM timely l LEFT JOIN others r ON l.k = r.k "
    "AND r.at BETWEEN l.at - INTERVAL 20 SECONDS AND l.at) GROUP BY date_trunc('minute', at)",
    "sessions": "SELECT k, session_window.start AS begins, session_window.end AS ends, count(*) AS n FROM timely "
    "GROUP BY k, session_window(at, '90 seconds')",
    "of sessions": "SELECT DISTINCT begins, ends FROM sessions",
    "extremes of sessions": "SELECT window.end AS e, min(n) AS least, max(begins) AS last FROM sessions "
    "GROUP BY window(ends, '2 minutes')",
    "sessions within": "SELECT date_trunc('minute', ends) AS m, max(n) AS most FROM (SELECT k, "
    "session_window.end AS ends, count(*) AS n FROM timely GROUP BY k, session_window(at, '40 seconds')) "
    "GROUP BY date_trunc('minute', ends)",
}  # fmt: skip
QUERIES_DIVIDED = {name: QUERIES[name] for name in ("windows", "band", "outer")}
STAYS = {"extremes of all", "truncated join", "static rows that change", "dates"}
"""Queries whose state stays, or goes after the test is over."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _drawn(seed: int, spread: timedelta) -> list[list[Fields]]:
    """Return the rows of steps of a minute each, many of them late by up to `spread`, some by more."""
    chance = random.Random(seed)

    def row(step: int) -> Fields:
        late = spread * (chance.random() if chance.random() < 0.97 else 2)
        # Times of whole ten seconds, so that keys with a time have several rows.
        seconds = (chance.randrange(60) - late.total_seconds()) // 10 * 10
        at = None if chance.random() < 0.02 else BEGIN + step * MINUTE + seconds * SECOND
        return {"k": chance.choice("abc"), "v": chance.randrange(20), "at": at}

    return [[row(step) for _ in range(chance.randrange(4, 12))] for step in range(STEPS)]


def _sum(steps: Sequence[Sequence[Fields]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in (dict(row) for rows in steps for row in rows):
        weight = row.pop("_weight")
        total[repr(row)] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


OF_BOTH = {name: QUERIES[name] for name in ("windows", "two bands", "outer", "left band", "silent", "union")}
OF_TIMELY = {"band": QUERIES["band"], "sessions": MINIMA_AND_SESSIONS["sessions"]}


def _united(parts: Sequence[bl.Stream], name: str) -> bl.Stream:
    return parts[0].union(name, *parts[1:])


def _queried(parts: Sequence[bl.Stream], name: str) -> bl.Stream:
    texts = (f"SELECT * FROM {part.name} WHERE v >= 0" for part in parts)
    return parts[0].dataflow.sql(name, " UNION ALL ".join(texts))


def _nested(parts: Sequence[bl.Stream], name: str) -> bl.Stream:
    within = parts[0].union(f"{name}_within", parts[1]).transform(f"{name}_passed", lambda df: df.where("v >= 0"))
    return _queried([within, *parts[2:]], name)


def _merged(parts: Sequence[bl.Stream], name: str) -> bl.Stream:
    return parts[0].merge(name, *parts[1:])


def _gathered(parts: Sequence[bl.Stream], name: str) -> bl.Stream:
    return _merged(parts, f"{name}_merged").gather(name, policy=bl.Batch(epochs=2))


def _looked_up(parts: Sequence[bl.Stream], name: str) -> bl.Stream:
    table = parts[0].group_by("k").agg(f"{name}_table", F.max("v").alias("most"))
    asked = _united(parts, f"{name}_united").lookup(f"{name}_asked", t=table.by("k"))
    return asked.transform(name, lambda df: df.select("k", "v", "at"))


Meet = Callable[[Sequence[bl.Stream], str], bl.Stream]
MEETINGS: dict[str, tuple[Meet, int]] = {
    "union": (_united, 2), "view": (_queried, 2), "union in a view": (_nested, 3), "merge": (_merged, 2),
    "gather": (_gathered, 2), "lookup": (_looked_up, 2),
}  # fmt: skip
"""What brings the parts of a stream together, and their number; the last three have times of their own."""


@pytest.mark.parametrize(
    ("queries", "divided", "meet"),
    [
        pytest.param(QUERIES, False, None, id="one task"),
        pytest.param(MINIMA_AND_SESSIONS, False, None, id="minima and sessions"),
        pytest.param({**QUERIES_DIVIDED, "extremes": MINIMA_AND_SESSIONS["extremes"]}, True, None, id="divided"),
        *(pytest.param(OF_BOTH, False, meet, id=meet) for meet in ("union", "view", "union in a view")),
        *(pytest.param(OF_TIMELY, False, meet, id=meet) for meet in ("merge", "gather", "lookup")),
    ],
)
def test_views_whose_state_goes_have_the_rows_of_spark(
    interpreting: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    queries: Mapping[str, str],
    divided: bool,
    meet: str | None,
) -> None:
    """Law: a view over rows that are not late is Spark's answer over them, and its state does not grow with time.

    That holds wherever streams with a watermark of their own have met before.
    """
    if divided:
        monkeypatch.setattr(planner, "ONE_TASK_BYTES", 0)
    monkeypatch.setattr(table, "SINGLE", 1)  # merges as often as may be
    bring, number = MEETINGS.get(meet or "", (None, 1))
    streams = {"timely": (7, 2 * MINUTE), "others": (8, MINUTE)}
    if queries is OF_TIMELY:
        del streams["others"]
    parts = {name: [_drawn(seed + 10 * n, spread) for n in range(number)] for name, (seed, spread) in streams.items()}
    flow = bl.Dataflow("bounded")
    for name, drawn in parts.items():
        names = [name] if bring is None else [f"{name}_{place}" for place in range(number)]
        streamed = []
        for part, steps in zip(names, drawn, strict=True):
            write_steps(steps, f"{part}_rows")
            late_by = f"{streams[name][1].seconds // 60} minutes"
            streamed.append(rows_of(flow, f"{part}_rows").with_watermark(part, "at", late_by, policy=OFTEN))
        if bring is not None:
            bring(streamed, name)
    for name, text in queries.items():
        own = name.replace(" ", "_")
        flow.sql(own, text, policy=OFTEN).sink(f"{own}_out", bl.parquet(f"out/{own}"))
    sizes: dict[str, list[int]] = {}
    grown = StateParts.grown

    before: dict[str, Mapping[str, int]] = {}

    def watch(self: StateParts, held: HeldRuns, step: int, passed: Mapping[str, int]) -> None:
        """Take note of the size of a state; hold that no row comes that had expired before the step."""
        sizes.setdefault(self._name, []).append(sum(run.rows for runs in held.values() for run in runs))
        for part, now in before.get(self._name, {}).items():
            _, codec = self._tables[part]._merge.args  # type: ignore[attr-defined]
            for added in (each for each in held[part] if each.first == step):
                opened = open_run(self._jobs.inputs.path(added), added, codec=codec)
                for segment in opened.segments:
                    values = codec.read(segment.values, slice(0, len(segment.hash)))
                    rows = KeyedRows(segment.hash, segment.keys, values, segment.collides)
                    assert self._expiries[part].alive(rows, now).all(), f"{part} of {self._name} takes what is over"
        before[self._name] = dict(passed)
        grown(self, held, step, passed)

    monkeypatch.setattr(StateParts, "grown", watch)
    run(flow, interpreting)
    for name, drawn in parts.items():
        timely = [row for steps in drawn for rows in judged(steps, streams[name][1])[0] for row in rows]
        assert len(timely) < sum(len(rows) for steps in drawn for rows in steps), "some rows are late"
        made = [Row(row["k"], row["v"], row["at"]) for row in timely]
        interpreting.createDataFrame(made, SCHEMA).createOrReplaceTempView(name)
        request.addfinalizer(partial(interpreting.catalog.dropTempView, name))
    for name, text in queries.items():
        own = name.replace(" ", "_")
        expected = interpreting.sql(text).withColumn("_weight", F.lit(1))
        if own in ("distinct", "sessions"):
            # A column of Spark's own keeps the mark of a session, and would be one again.
            interpreting.createDataFrame(expected.drop("_weight").toArrow()).createOrReplaceTempView(own)
            request.addfinalizer(partial(interpreting.catalog.dropTempView, own))
        assert _sum(steps_of(f"out/{own}")) == _sum([expected.toArrow().to_pylist()]), name
        if name in STAYS or queries is OF_TIMELY:  # a merge may take all steps of one part before those of another
            continue
        grown_to = sizes[own]
        assert max(grown_to[-STEPS // 4 :]) <= 2 * max(grown_to[: STEPS // 2]), (name, grown_to)
        assert max(grown_to[-STEPS // 4 :]) < number * sum(map(len, parts["timely"][0])), (name, grown_to)


def test_a_lateness_judges_changes_one_by_one(spark: SparkSession) -> None:
    """Law: a late change is dropped, of a row that goes as of one that comes: what is before the bound stays."""
    chance = random.Random(4)
    steps: list[list[Fields]] = []
    for step, drawn in enumerate(_drawn(3, MINUTE)[:12]):
        there = [{**row, "v": 1} for row in drawn if row["at"] is not None]
        before = [row for rows in steps for row in rows if row["v"] == 1]
        gone = [{**row, "v": -1} for row in chance.sample(before, min(3, len(before)))] if step else []
        steps.append([*there, *gone])
    write_steps(steps)
    flow = bl.Dataflow("late-changes")
    timely = rows_of(flow).changes("changes", weight="v").with_watermark("timely", "at", "1 minute")
    timely.sink("timely_out", bl.parquet("out/timely"))
    timely.late_rows("late").sink("late_out", bl.parquet("out/late"))
    flow.sql("counts", "SELECT k, count(*) AS n FROM timely GROUP BY k").sink("counts_out", bl.parquet("out/counts"))
    run(flow, spark)
    expected, late, _ = judged(steps, MINUTE)
    for path, parts in (("timely", expected), ("late", late)):
        wanted = []
        for rows in parts:
            step: Counter[Any] = Counter()
            for row in rows:
                step[row["k"], row["at"]] += row["v"]
            wanted.append({row: weight for row, weight in step.items() if weight})
        found = [{(row["k"], row["at"]): 0 for row in rows} for rows in steps_of(f"out/{path}")]
        for rows, step_sum in zip(steps_of(f"out/{path}"), found, strict=True):
            for row in rows:
                step_sum[row["k"], row["at"]] += row["_weight"]
        assert [{row: weight for row, weight in each.items() if weight} for each in found] == wanted, path
    assert any(row["v"] == -1 for rows in late for row in rows), "a row that goes is late"
    totals = Counter[str]()
    for row in (row for rows in expected for row in rows):
        totals[row["k"]] += row["v"]
    assert _sum(steps_of("out/counts")) == Counter(repr({"k": k, "n": n}) for k, n in totals.items() if n)


def test_a_source_has_a_lateness_of_its_own(spark: SparkSession) -> None:
    steps = _drawn(8, 2 * MINUTE)[:6]
    write_steps(steps)
    flow = bl.Dataflow("own")
    source = bl.files("rows", format="parquet", schema=SCHEMA, max_files_per_step=1)
    rows = flow.source("rows", source, lateness={"at": "1 minute"})
    assert (rows.name, list(flow.processors)) == ("rows", ["rows_source", "rows"])
    rows.sink("timely_out", bl.parquet("timely"))
    rows.late_rows("late").sink("out", bl.parquet("out"))
    run(flow, spark)
    late = judged(steps, MINUTE)[1]
    assert [len(rows) for rows in steps_of("out")] == list(map(len, late))
    assert any(late)
