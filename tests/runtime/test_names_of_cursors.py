"""Cursors that hold names: what a source is polled with, whatever its process died of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boatlift.dataflow import Json, Names
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.codec import decode_group
from boatlift.storage.records.records import Cursor, Snapshot, TakenNames
from boatlift.storage.store import Store
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import check_store, open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.worlds.facts import Unsynced

NAMES_A_ROW = 150


def names(begin: int, end: int) -> list[str]:
    return [f"{row}-{number}" for row in range(begin, end) for number in range(NAMES_A_ROW)]


class NamesEngine(MemoryEngine):
    """Its source takes rows by name, many names each."""

    def first_cursor(self, source: str) -> Json:
        return {"taken": 0, "names": Names()}

    def poll(self, source: str, cursor: Json) -> Json | None:
        assert list(cursor["names"]) == names(0, cursor["taken"])
        return super().poll(source, cursor)

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        more = names(position["start"], position["end"])
        return {**super().advance(source, cursor, position), "names": cursor["names"].plus(more)}


class ListEngine(NamesEngine):
    """As logs of format 3 have it: a list in each cursor."""

    def first_cursor(self, source: str) -> Json:
        return {"taken": 0, "names": []}

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        more = names(position["start"], position["end"])
        return {"taken": position["end"], "names": [*cursor["names"], *more]}


def check_names(store: Store) -> int:
    """What the log has of names is what its cursor stands for; return how many that are."""
    log = Log.open(store, "flow")
    _, cursor = log.history.cursors["rows"]
    assert cursor.keys() == {"taken"}
    assert list(log.names_taken("rows")) == names(0, cursor["taken"])
    return len(names(0, cursor["taken"]))


class Kept(LocalStore):
    """Keeps what was ever written to the log, and for each manifest how many names were known as objects were due."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.records: list[Any] = []
        self.known = 0
        self.manifests: list[tuple[TakenNames, int]] = []

    def create(self, name: str, content: bytes | Path) -> None:
        super().create(name, content)
        if name.startswith("log/") and isinstance(content, bytes):
            records = decode_group(content, name)[1]
            self.records += records
            self.manifests += [(each.names["rows"], self.known) for each in records if isinstance(each, Snapshot)]


def test_no_name_is_recorded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest has few names of its own: less than fill an object, and those recorded while objects were written."""
    world = World(rows=300)
    store = Kept.open(tmp_path, create=True, filesystem=Unsynced())
    move_out = Log.move_out

    def counted(log: Log) -> None:
        store.known = log.history.names["rows"].count
        move_out(log)

    monkeypatch.setattr(Log, "move_out", counted)
    run(NamesEngine(world), store)
    world.check()
    written = [name for record in store.records if isinstance(record, Cursor) for name in record.names]
    assert len(written) == check_names(store) > 10_000
    assert store.manifests
    assert all(len(names.new) < 1024 + names.count - known for names, known in store.manifests)
    check_store(tmp_path)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_again_and_again_every_poll_knows_what_was_taken(tmp_path: Path, after: bool) -> None:
    world, lives = World(rows=400), 0
    while True:
        store = MortalStore.of(tmp_path, Fate(9 + 3 * lives, after=after))
        lives += 1
        try:
            run(NamesEngine(world, every=3), store)
        except KilledError:
            continue
        break
    assert lives > 5
    world.rows = 700
    run(NamesEngine(world, every=3), open_store(tmp_path))
    world.check()
    assert check_names(store) > 10_000
    assert list(store.list("names/")), "names stand in objects by now"
    check_store(tmp_path)


def test_a_log_whose_cursors_have_lists_is_read(tmp_path: Path) -> None:
    world = World(rows=200)
    run(ListEngine(world), open_store(tmp_path))
    _, cursor = Log.open(open_store(tmp_path), "flow").history.cursors["rows"]
    assert isinstance(cursor["names"], list)
    world.rows = 400
    run(NamesEngine(world), open_store(tmp_path))
    world.check()
    assert check_names(open_store(tmp_path)) > 30_000
    check_store(tmp_path)
