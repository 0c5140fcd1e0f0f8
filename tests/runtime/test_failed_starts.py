"""A start that fails before its first step leaves its error in the journal, for the history on the console."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from boatlift.errors import DataError, FencedError, InvalidError
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.ownership import this_process
from boatlift.storage.journal import JournalReader
from boatlift.storage.records.journal import RunEvent
from boatlift.storage.records.records import Claim
from support.engine.hosts import open_store, process_of
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.worlds.logs import claimed


def failures(folder: Path) -> list[RunEvent]:
    reader = JournalReader(open_store(folder))
    reader.catch_up()
    assert all(each.at > each.began or each.taken for each in reader.samples(0)), "charts know of no failed start"
    return [event for event in reader.events if event.kind == "failure"]


class Refuses(MemoryEngine):
    """What a claim asks of it is refused."""

    error: Exception = InvalidError("PLAN_CHANGED", "the plan is another")

    def environment(self) -> dict[str, object]:
        raise self.error


class LosesState(MemoryEngine):
    """What it was to begin with is gone."""

    def start(self, beginning: object) -> None:
        raise DataError("MISSING_OBJECT", "a run is gone")


def test_a_claim_that_is_refused_is_in_the_journal(tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        Host(Refuses(World()), open_store(tmp_path), RunOptions(available_now=True)).run()
    (event,) = failures(tmp_path)
    assert (event.who, event.step) == ("flow", -1)
    assert event.said == "[PLAN_CHANGED] the plan is another (the start ended before its first step)"


def test_an_engine_that_cannot_begin_is_in_the_journal(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(DataError):
            Host(LosesState(World()), open_store(tmp_path), RunOptions(available_now=True)).run()
    assert [each.said.partition("]")[0] for each in failures(tmp_path)] == ["[MISSING_OBJECT"] * 2


def test_a_start_beside_a_run_leaves_its_store_as_it_was(tmp_path: Path) -> None:
    store, owner = open_store(tmp_path), os.getppid()
    assert this_process()
    claimed(store, Claim(socket.gethostname(), owner, 1, PROGRAM, {}, process_of(owner)))
    with pytest.raises(InvalidError, match=r"\[STORE_IN_USE\]"):
        Host(MemoryEngine(World()), store, RunOptions(available_now=True)).run()
    assert not (tmp_path / "journal").exists()


def test_a_start_on_the_store_of_another_dataflow_leaves_it_as_it_was(tmp_path: Path) -> None:
    Host(MemoryEngine(World()), open_store(tmp_path), RunOptions(available_now=True)).run()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = MemoryEngine(World())
    other.plan = replace(other.plan, dataflow="other")
    with pytest.raises(DataError, match="STORE_OF_ANOTHER_DATAFLOW"):
        Host(other, open_store(tmp_path), RunOptions(available_now=True)).run()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_process_that_a_newer_owner_fences_has_not_failed(tmp_path: Path) -> None:
    class Fenced(Refuses):
        error = FencedError("FENCED", "another owns it")

    with pytest.raises(FencedError):
        Host(Fenced(World()), open_store(tmp_path), RunOptions(available_now=True)).run()
    assert failures(tmp_path) == []


def test_a_failure_of_the_run_itself_is_noted_once(tmp_path: Path) -> None:
    class Fails(MemoryEngine):
        def run(self, order: object) -> object:  # type: ignore[override]
            raise DataError("CORRUPT", "a file is gone")

    with pytest.raises(DataError):
        Host(Fails(World()), open_store(tmp_path), RunOptions(available_now=True)).run()
    (event,) = failures(tmp_path)
    assert event.said == "[CORRUPT] a file is gone"
