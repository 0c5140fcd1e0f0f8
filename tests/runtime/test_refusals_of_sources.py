"""A source that cannot give what comes next: what it has closed already is finished first, at every start again."""

from __future__ import annotations

from pathlib import Path

import pytest

from boatlift.dataflow import Json
from boatlift.errors import DataError, FencedError
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.storage.log import Log
from support.engine.hosts import check_store, open_store, run, silent
from support.engine.memory_engine import ROWS_A_STEP, MemoryEngine, World


class BadFile(MemoryEngine):
    """The source's next file after some rows is bad."""

    bad_from = 4 * ROWS_A_STEP

    def poll(self, source: str, cursor: Json) -> Json | None:
        if cursor["taken"] >= self.bad_from:
            raise DataError("INPUT_EMPTY", "the file has no bytes")
        return super().poll(source, cursor)


@pytest.mark.parametrize("available_now", [True, False])
def test_what_came_before_it_is_delivered_and_then_it_is_named(tmp_path: Path, available_now: bool) -> None:
    world = World(rows=20)
    store = open_store(tmp_path)
    with pytest.raises(DataError, match="INPUT_EMPTY"):
        Host(BadFile(world), store, RunOptions(available_now=available_now, on_progress=silent)).run()
    assert len(world.held["totals"]) == 4
    check_store(tmp_path)
    for _ in range(2):
        with pytest.raises(DataError, match="INPUT_EMPTY"):
            run(BadFile(world), store)
        assert len(world.held["totals"]) == 4
    run(MemoryEngine(world), store)  # the file was mended
    world.check()


def test_also_when_a_crash_came_between(tmp_path: Path) -> None:
    """Closed steps that never ran wait in the log, and the bad file waits in front of the source."""
    world = World(rows=20)
    store = open_store(tmp_path)

    class Dies(BadFile):
        def run(self, order):  # type: ignore[no-untyped-def]
            raise ZeroDivisionError("of the engine")

    with pytest.raises(ZeroDivisionError):
        run(Dies(world), store)
    closed = Log.open(store, "flow").history.last_closed("rows")
    assert closed >= 0
    assert world.held["totals"] == []
    with pytest.raises(DataError, match="INPUT_EMPTY"):
        run(BadFile(world), store)
    assert len(world.held["totals"]) == 4


def test_a_newer_owner_is_reported_at_once(tmp_path: Path) -> None:
    world = World(rows=20)

    class Fenced(MemoryEngine):
        def poll(self, source: str, cursor: Json) -> Json | None:
            raise FencedError("FENCED", "another process owns it")

    with pytest.raises(FencedError):
        run(Fenced(world), open_store(tmp_path))
    assert world.held["totals"] == []
