"""Both kinds of databases, for tests that hold for each: their cases as parameters, and tables that tests fill."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boatlift.connectors.databases.sink import TableSink
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import BoatliftError
from boatlift.testing.mysql_server import MysqlServer
from boatlift.testing.postgres_server import PostgresServer
from connectors.conformance import STORE, Row, context, put
from connectors.sink_cases import DatabaseCase, MysqlAppendCase, MysqlCase, PostgresAppendCase, PostgresCase

Case = type[DatabaseCase]
Server = PostgresServer | MysqlServer

CASES = [
    pytest.param(PostgresCase, id="postgres", marks=pytest.mark.postgres),
    pytest.param(PostgresAppendCase, id="postgres, appended", marks=pytest.mark.postgres),
    pytest.param(MysqlCase, id="mysql", marks=pytest.mark.mysql),
    pytest.param(MysqlAppendCase, id="mysql, appended", marks=pytest.mark.mysql),
]
KEYED = [CASES[0], CASES[2]]

SECRET = "geheim-4711"
"""A password that no message has."""


def kind_of(case: Case) -> str:
    return "mysql" if issubclass(case, MysqlCase) else "postgres"


class Table:
    """A sink over a schema, handed steps as lists of tuples."""

    def __init__(
        self, case: Case, folder: Path, schema: pa.Schema, key: Sequence[str] | None, token: int = 1, **options: Any
    ) -> None:
        self._case, self._folder, self._schema = case, folder, schema
        self.sink: TableSink = case.sink(table="t", key=key, **options)
        held = self.sink.open(SinkContext("flow", "out", STORE, token, schema, "_weight" in schema.names))
        self.step = -1 if held is None else held.step

    def put(self, *rows: tuple[Any, ...]) -> None:
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema)
        self.put_columns(*(pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)))

    def put_columns(self, *columns: pa.Array) -> None:
        batch = pa.record_batch(list(columns), schema=self._schema)
        name = f"piece {self.step + 1}"
        receipt = self.sink.stager().stage(str(self._folder), name, 0, iter([batch]))
        self.sink.commit(self.step + 1, batch.num_rows, f"d{self.step + 1}", [receipt])
        self.step += 1

    def rows(self) -> list[Row]:
        return sorted(self._case.on.query("SELECT * FROM t"), key=repr)

    def held(self) -> pa.Table:
        assert self.sink._table is not None
        return self.sink._transactions.transaction(self.sink._table.held, "held", writes=False)


def opened(case: Case, steps: int, folder: Path, lock_timeout: float = 0.2) -> TableSink:
    """Return an open sink whose table `results` has so many steps, or more."""
    sink = case.sink(table="results", key=["k"], lock_timeout=lock_timeout)
    held = sink.open(context(1))
    for step in range(0 if held is None else held.step + 1, steps):
        put(sink, folder, step)
    return sink


def refused(sink: TableSink, condition: str) -> str:
    """Assert that a sink is refused by `open` and beforehand, without its secret; return the message."""
    preflight = sink.capabilities.preflight
    assert preflight is not None
    with pytest.raises(BoatliftError, match=rf"\[{condition}\]"):
        preflight(context(0))
    with pytest.raises(BoatliftError, match=rf"\[{condition}\]") as caught:
        sink.open(context(1))
    told = "".join(traceback.format_exception(caught.value))
    seen = (sink, sink.describe(), sink.capabilities, vars(sink), sink._dialect.address)
    assert SECRET not in told + "".join(map(repr, seen))
    return str(caught.value)
