"""How the suites of laws use the source and the sink of `docs/connectors.md`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from boatlift.dataflow import Json, Sink, Source
from connectors.conformance import Row, SinkCase, ordered
from connectors.source_laws import SourceCase
from examples.journal_sink import JournalSink
from examples.log_source import LogSource


class LogCase(SourceCase):
    endless = False

    @staticmethod
    def make(folder: Path) -> Source:
        return LogSource(folder / "log.txt")

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        rows: list[Row] = [(number * 100 + i, f"row {i}") for i in range(20)]
        with (folder / "log.txt").open("a") as file:
            file.writelines(f"{key} {text}\n" for key, text in rows)
        return rows

    @staticmethod
    def tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        def rewrite(folder: Path, position: Json) -> None:
            path = folder / "log.txt"
            path.write_text(path.read_text().replace("row 1", "row 2"))

        return {
            "other bytes": ("INPUT_CHANGED", rewrite),
            "gone": ("INPUT_CHANGED", lambda folder, position: (folder / "log.txt").unlink()),
        }


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
