"""Both kinds of databases, for tests that hold for each: their cases as parameters, and tables that tests fill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boatlift.connectors.databases.sink import TableSink
from boatlift.dataflow.contracts import SinkContext
from boatlift.testing.mysql_server import MysqlServer
from boatlift.testing.postgres_server import PostgresServer
from connectors.conformance import STORE, Row
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
