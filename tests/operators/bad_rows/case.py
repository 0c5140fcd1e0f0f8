"""BAD ROWS in the laws of operators: lines that fit, and the letters of those that do not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boatlift as bl
from operators.laws import SCHEMA, OperatorCase, Rows, as_row, rows_of


def lines(rows: bl.Stream, name: str) -> bl.Stream:
    source = bl.files("lines/*.csv", schema=SCHEMA, max_files_per_step=1)
    return rows.dataflow.source(name, source, bad_rows="dead_letters")


def build_fitting(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    fitting = lines(rows, "fitting-lines")
    fitting.bad_rows("unread").sink("unread-out", bl.parquet("out/unread"))
    return fitting.transform("fitting", lambda df: df.select("k", "v"))


def build_letters(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    judged = lines(rows, "judged-lines")
    judged.sink("judged-out", bl.parquet("out/judged"))
    return judged.bad_rows("letters")


def expected_fitting(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(as_row({"k": row["k"], "v": row["v"]}) for row in rows if row["v"] >= 0)


def expected_letters(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(as_row({"text": f"{row['k']},minus,{row['x']}"}) for row in rows if row["v"] < 0)


def texts_of(steps: Any) -> Rows:
    return Counter(as_row({"text": row["text"]}) for step in steps for row in step)


CASES = [
    OperatorCase("fitting", build_fitting, expected_fitting, rows_of),
    OperatorCase("letters", build_letters, expected_letters, texts_of),
]
