"""How `connectors.conformance` uses each sink: importable, so that other processes find it."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

import boatlift.connectors.databases.mysql.table
import boatlift.connectors.databases.postgres.table
import boatlift.connectors.parquet.step_file
import boatlift.connectors.sqlite.table  # noqa: F401 - processes that are forked for tests have it all imported
from boatlift.connectors import delta, mysql, parquet, postgres, sqlite
from boatlift.connectors.databases.sink import TableSink
from boatlift.dataflow.contracts import Sink
from boatlift.storage.object_store import ObjectStore
from connectors.conformance import Row, SinkCase, ordered
from support import mysql as on_mysql
from support import postgres as on_postgres
from support.postgres import CONNINFO, table_of

pa.array([1])  # makes Arrow import what it needs for this, once and not in every process that is forked


class ParquetCase(SinkCase):
    """Read as anyone reads a folder of Parquet files."""

    refuses_nan = False

    @staticmethod
    def make(folder: Path) -> Sink:
        return parquet(folder)

    @staticmethod
    def make_with_another_key(folder: Path) -> Sink:
        return parquet(folder, key=["k"])

    @staticmethod
    def read(folder: Path) -> list[Row]:
        # Every file as it is there, read by a reader that knows nothing of Boatlift.
        if not folder.is_dir() or not any(folder.glob("*.parquet")):
            return []
        return ordered(tuple(row.values()) for row in pq.read_table(folder).to_pylist())

    @staticmethod
    def spoil(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        table = {"k": [1], "name": ["x"], "value": [0.5], "_weight": [1]}
        pq.write_table(pa.table(table), folder / "step-000000000000.parquet")

    @staticmethod
    def damages() -> dict[str, tuple[str, Callable[[Path], None]]]:
        def step(folder: Path, number: int) -> Path:
            return folder / f"step-{number:012d}.parquet"

        return {
            "a flipped byte in an old step": ("SINK_DAMAGED", lambda folder: flip_a_bit(step(folder, 0), 40)),
            "a cut step": ("SINK_DAMAGED", lambda folder: os.truncate(step(folder, 1), 200)),
            "a step gone": ("SINK_GAP", lambda folder: step(folder, 1).unlink()),
            "a step under another's name": ("SINK_DAMAGED", lambda folder: _copy(step(folder, 1), step(folder, 2))),
            "a file of another program": ("SINK_OF_ANOTHER_DATAFLOW", lambda folder: (folder / "x.parquet").touch()),
            "no identity": (
                "SINK_OF_ANOTHER_DATAFLOW",
                lambda folder: (folder / "_boatlift" / "identity.json").unlink(),
            ),
            "a flipped byte in the identity": (
                "SINK_DAMAGED",
                lambda folder: flip_a_bit(folder / "_boatlift" / "identity.json", 0),
            ),
        }


class ParquetBucketCase(SinkCase):
    """Below a prefix of a bucket, which has the name of the folder; a folder of that name holds nothing."""

    refuses_nan = False

    @staticmethod
    def url(folder: Path) -> str:
        return f"s3://boatlift{folder}"

    @classmethod
    def objects(cls, folder: Path) -> ObjectStore:
        return ObjectStore(cls.url(folder), Path(os.environ["BOATLIFT_SCRATCH"]) / "looking")

    @classmethod
    def make(cls, folder: Path) -> Sink:
        return parquet(cls.url(folder))

    @classmethod
    def make_with_another_key(cls, folder: Path) -> Sink:
        return parquet(cls.url(folder), key=["k"])

    @classmethod
    def read(cls, folder: Path) -> list[Row]:
        objects = cls.objects(folder)
        tables = [pq.read_table(pa.BufferReader(content)) for content in objects.read_all([*objects.list("")])]
        return ordered(tuple(row.values()) for table in tables for row in table.to_pylist())

    @classmethod
    def remove(cls, folder: Path) -> None:
        objects = cls.objects(folder)
        objects.delete(*objects.list(""))

    @classmethod
    def spoil(cls, folder: Path) -> None:
        table, out = {"k": [1], "name": ["x"], "value": [0.5], "_weight": [1]}, pa.BufferOutputStream()
        pq.write_table(pa.table(table), out)
        cls.objects(folder).create("part-000000000000.parquet", out.getvalue().to_pybytes())

    @classmethod
    def damages(cls) -> dict[str, tuple[str, Callable[[Path], None]]]:
        def change(folder: Path, number: int, by: Callable[[bytearray], bytes | bytearray], to: int = -1) -> None:
            objects, names = cls.objects(folder), [f"part-{each:012d}.parquet" for each in (number, to)]
            content = by(bytearray(objects.read(names[0])))
            target = names[to >= 0]
            objects.delete(target)
            objects.create(target, bytes(content))

        def flipped(content: bytearray) -> bytearray:
            content[40] ^= 1
            return content

        return {
            "a flipped byte in an old step": ("SINK_DAMAGED", lambda folder: change(folder, 1, flipped)),
            "a cut step": ("SINK_DAMAGED", lambda folder: change(folder, 2, lambda content: content[:200])),
            "an empty step": ("SINK_DAMAGED", lambda folder: change(folder, 2, lambda _: b"")),
            "a step under another's name": ("SINK_DAMAGED", lambda folder: change(folder, 2, bytes, to=3)),
            "a file of another program": (
                "SINK_OF_ANOTHER_DATAFLOW",
                lambda folder: cls.objects(folder).create("x.parquet", b""),
            ),
        }


class DeltaCase(SinkCase):
    """Read by the text of the log and by PyArrow, which know nothing of the client that writes."""

    refuses_nan = False

    @staticmethod
    def make(folder: Path) -> Sink:
        return delta(folder)

    @staticmethod
    def make_with_another_key(folder: Path) -> Sink:
        return delta(folder, compression="none")  # there is no key

    @staticmethod
    def files(folder: Path) -> list[str]:
        found = []
        for path in sorted((folder / "_delta_log").glob("*.json")):
            for line in path.read_text().splitlines():
                action = json.loads(line)
                found += [action["add"]["path"]] if "add" in action else []
        return found

    @classmethod
    def read(cls, folder: Path) -> list[Row]:
        tables = [pq.ParquetFile(folder / name).read() for name in cls.files(folder)]
        return ordered(tuple(row.values()) for table in tables for row in table.to_pylist())

    @staticmethod
    def spoil(folder: Path) -> None:
        write_deltalake(folder, pa.table({"k": [1], "name": ["x"], "value": [0.5], "_weight": [1]}))

    @classmethod
    def damages(cls) -> dict[str, tuple[str, Callable[[Path], None]]]:
        def change(folder: Path, by: Callable[[Path], None]) -> None:
            by(folder / cls.files(folder)[1])

        return {
            "a cut file": ("SINK_DAMAGED", lambda folder: change(folder, lambda path: os.truncate(path, 200))),
            "a file gone": ("SINK_GAP", lambda folder: change(folder, Path.unlink)),
        }


def flip_a_bit(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


class SqliteCase(SinkCase):
    """Read by a connection of its own."""

    nan = "refuse"
    refuses_nan = True

    @classmethod
    def make(cls, folder: Path) -> Sink:
        return sqlite(folder / "out.db", table="results", key=["k"], nan=cls.nan, lock_timeout=0.1)  # type: ignore[arg-type]

    @staticmethod
    def make_with_another_key(folder: Path) -> Sink:
        return sqlite(folder / "out.db", table="results", key=["k", "name"], lock_timeout=0.1)

    @staticmethod
    def read(folder: Path) -> list[Row]:
        path = folder / "out.db"
        if not path.exists():
            return []
        connection = sqlite3.connect(path)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'results'").fetchone():
                return []
            return ordered(connection.execute("SELECT k, name, value FROM results").fetchall())
        finally:
            connection.close()

    @staticmethod
    def spoil(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        connection = sqlite3.connect(folder / "out.db", isolation_level=None)
        connection.execute("CREATE TABLE results (k INTEGER, name TEXT, value REAL)")
        connection.execute("INSERT INTO results VALUES (1, 'by hand', 0.5)")
        connection.close()

    @staticmethod
    def damages() -> dict[str, tuple[str, Callable[[Path], None]]]:
        def by(sql: str) -> Callable[[Path], None]:
            def damage(folder: Path) -> None:
                connection = sqlite3.connect(folder / "out.db", isolation_level=None)
                connection.execute(sql)
                connection.close()

            return damage

        def overwrite(folder: Path) -> None:
            path = folder / "out.db"
            content = path.read_bytes()
            path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))

        return {
            "the table is gone": ("SINK_DAMAGED", by("DROP TABLE results")),
            "its entry is gone": ("SINK_DAMAGED", by("DELETE FROM _boatlift_sinks")),
            "a step is not in the ledger": ("SINK_GAP", by("DELETE FROM _boatlift_ledger WHERE step = 1")),
            "the first step is not in the ledger": ("SINK_GAP", by("DELETE FROM _boatlift_ledger WHERE step = 0")),
            "a newer format": ("NEWER_FORMAT", by("UPDATE _boatlift_sinks SET format = 2")),
            "pages are overwritten": ("SINK_DAMAGED", overwrite),
            "the file is cut": ("SINK_DAMAGED", lambda folder: os.truncate(folder / "out.db", 6000)),
            "no database": ("SINK_DAMAGED", lambda folder: flip_a_bit(folder / "out.db", 0)),
        }


class SqliteNanCase(SqliteCase):
    """Keeps NaN as text."""

    nan = "text"
    refuses_nan = False


class DatabaseCase(SinkCase):
    """A table that has its name from the folder, in the database of the environment; the folder holds nothing."""

    refuses_nan = False
    lags = True  # the server may still get the COMMIT that a killed process has sent
    key: Sequence[str] | None = ["k"]
    columns = "k, name, value"
    sinks: ClassVar[str]
    steps: ClassVar[str]
    notes: ClassVar[str]
    on: ClassVar[ModuleType]

    @classmethod
    def name(cls, folder: Path) -> str:
        return table_of(folder)

    @classmethod
    def sink(cls, **options: Any) -> TableSink:
        """Make a sink in the database."""
        raise NotImplementedError

    @classmethod
    def make(cls, folder: Path) -> Sink:
        return cls.sink(table=table_of(folder), key=cls.key, lock_timeout=0.2)

    @classmethod
    def make_with_another_key(cls, folder: Path) -> Sink:
        return cls.sink(table=table_of(folder), key=["k", "name"], lock_timeout=0.2)

    @classmethod
    def read(cls, folder: Path) -> list[Row]:
        return cls.on.rows_in(table_of(folder), cls.columns)  # type: ignore[no-any-return]

    @classmethod
    def remove(cls, folder: Path) -> None:
        cls.on.query(f"DROP TABLE IF EXISTS {table_of(folder)}")
        for table in (cls.sinks, cls.steps, cls.notes):
            cls.on.query(f"DELETE FROM {table}")

    @classmethod
    def spoil(cls, folder: Path) -> None:
        cls.on.query(f"CREATE TABLE {table_of(folder)} (k bigint, name text, value float, _weight bigint DEFAULT 1)")
        cls.on.query(f"INSERT INTO {table_of(folder)} VALUES (1, 'by hand', 0.5, 1)")

    @classmethod
    def damages(cls) -> dict[str, tuple[str, Callable[[Path], None]]]:
        def by(sql: str) -> Callable[[Path], None]:
            return lambda folder: cls.on.query(sql.format(table_of(folder))) and None

        return {
            "the table is gone": ("SINK_DAMAGED", by("DROP TABLE {}")),
            "its entry is gone": ("SINK_DAMAGED", by(f"DELETE FROM {cls.sinks}")),
            "a step is not in the ledger": ("SINK_GAP", by(f"DELETE FROM {cls.steps} WHERE step = 1")),
            "the first step is not in the ledger": ("SINK_GAP", by(f"DELETE FROM {cls.steps} WHERE step = 0")),
            "the last step is not in the ledger": ("SINK_GAP", by(f"DELETE FROM {cls.steps} WHERE step = 2")),
            "a newer format": ("NEWER_FORMAT", by(f"UPDATE {cls.sinks} SET format = 2")),
        }


class PostgresCase(DatabaseCase):
    """A table of PostgreSQL."""

    refuses_nul = True
    sinks, steps, notes = "_boatlift.sinks", "_boatlift.steps", "_boatlift.notes"
    on = on_postgres

    @classmethod
    def sink(cls, **options: Any) -> TableSink:
        return postgres(CONNINFO, **options)


class PostgresAppendCase(PostgresCase):
    """Without a key: all rows are appended, with their weights."""

    key = None
    columns = "*"


class MysqlCase(DatabaseCase):
    """A table of MariaDB."""

    refuses_nan = True
    lacks_infinity = True
    sinks, steps, notes = "_boatlift_sinks", "_boatlift_steps", "_boatlift_notes"
    on = on_mysql

    @classmethod
    def sink(cls, **options: Any) -> TableSink:
        return mysql(on_mysql.url(), **options)


class MysqlAppendCase(MysqlCase):
    """Without a key: all rows are appended, with their weights."""

    key = None
    columns = "*"
