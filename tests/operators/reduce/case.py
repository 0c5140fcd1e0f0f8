"""Reductions in the laws of operators: what the steps add up to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, Steps, as_row


def build(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    return rows.group_by("k").reduce("reduce", F.count("*").alias("n"), F.sum("v").alias("v"))


def added(parts: Sequence[tuple[str, int, int]]) -> Rows:
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for key, count, total in parts:
        totals[key][0] += count
        totals[key][1] += total
    return Counter(as_row({"k": key, "n": n, "v": v}) for key, (n, v) in totals.items())


def expected(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return added([(row["k"], 1, row["v"]) for row in rows])


def result(steps: Steps) -> Rows:
    for step in steps:
        assert len({row["k"] for row in step}) == len(step), "a step has one row a key"
    return added([(row["k"], row["n"], row["v"]) for step in steps for row in step])


CASES = [OperatorCase("reduce", build, expected, result)]
