"""A custom operator in the laws of operators: the distinct values of each key."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, rows_of


def distinct_values() -> bl.StatefulOperator:
    """Return an operator that hands on a value of a key when it comes first."""

    class Distinct(bl.StatefulOperator):
        def __init__(self) -> None:
            self.seen: set[str] = set()
            self.new: list[str] = []

        def process(self, rows: pa.Table) -> pa.Table | None:
            made = []
            for row in rows.select(["k", "v"]).to_pylist():
                text = f"{row['k']} {row['v']}"
                if text not in self.seen:
                    self.seen.add(text)
                    self.new.append(text)
                    made.append(row)
            return rows.schema.empty_table().select(["k", "v"]) if not made else type(rows).from_pylist(made)

        def get_state(self) -> bytes:
            self.new = []
            return json.dumps(sorted(self.seen)).encode()

        def set_state(self, state: bytes) -> None:
            self.seen, self.new = set(json.loads(state)), []

        def get_delta(self) -> bytes:
            delta, self.new = json.dumps(self.new).encode(), []
            return delta

        def apply_delta(self, delta: bytes) -> None:
            self.seen.update(json.loads(delta))

    return Distinct()


def build(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    return rows.group_by("k").custom("custom", distinct_values(), output="k STRING, v LONG")


def expected(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter({as_row({"k": row["k"], "v": row["v"]}) for row in rows})


CASES = [OperatorCase("custom", build, expected, rows_of)]
