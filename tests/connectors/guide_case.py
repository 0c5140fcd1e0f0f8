"""How the suites of `connectors.conformance` use the sink of `docs/connectors.md`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from boatlift.dataflow import Sink
from connectors.conformance import Row, SinkCase, ordered
from examples.journal_sink import JournalSink


class JournalCase(SinkCase):
    refuses_nan = False

    @staticmethod
    def make(folder: Path) -> Sink:
        return JournalSink(folder / "journal.db")

    @staticmethod
    def make_with_another_key(folder: Path) -> Sink:
        return JournalSink(folder / "journal.db", key=["k"])

    @staticmethod
    def read(folder: Path) -> list[Row]:
        if not (folder / "journal.db").exists():
            return []
        with closing(sqlite3.connect(folder / "journal.db")) as database:
            lines = database.execute("SELECT line FROM lines").fetchall()
        return ordered(tuple(json.loads(line).values()) for (line,) in lines)

    @staticmethod
    def spoil(folder: Path) -> None:
        folder.mkdir()
        with closing(sqlite3.connect(folder / "journal.db", isolation_level=None)) as database:
            database.execute("CREATE TABLE lines (line TEXT)")

    @staticmethod
    def damages() -> dict[str, tuple[str, Callable[[Path], None]]]:
        def lose_a_step(folder: Path) -> None:
            with closing(sqlite3.connect(folder / "journal.db", isolation_level=None)) as database:
                database.execute("DELETE FROM steps WHERE step = 1")

        def overwrite(folder: Path) -> None:
            (folder / "journal.db").write_bytes(b"no database" * 1000)

        return {"a lost step": ("SINK_GAP", lose_a_step), "no database": ("SINK_DAMAGED", overwrite)}
