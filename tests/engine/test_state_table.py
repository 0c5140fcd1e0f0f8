"""The driver's list of runs: merged in the background, freed when nobody can read them any more."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from boatlift.engine.state_table import StateTable
from boatlift.errors import UnavailableError
from boatlift.storage.records import RunRef


def made(folder: Path, time: int, *, first: int | None = None) -> tuple[RunRef, Path]:
    path = folder / f"{first}-{time}.arrow"
    path.write_bytes(b"run")
    return RunRef(f"runs/{path.name}", time if first is None else first, time, 1, 0, 100, 3, ""), path


class Merger:
    """Merges runs into one that covers their times, when it is let."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.go_on = threading.Event()
        self.done = threading.Event()

    def __call__(self, runs: Sequence[RunRef], paths: Sequence[Path]) -> list[tuple[RunRef, Path]]:
        assert all(path.exists() for path in paths)
        self.go_on.wait(10)
        return [made(self.folder, max(run.last for run in runs), first=min(run.first for run in runs))]


def filled(folder: Path, merger: Merger) -> tuple[StateTable, list[tuple[RunRef, Path]]]:
    table = StateTable(merger)
    runs = [made(folder, time) for time in range(5)]
    for run in runs:
        table.add([run])
    return table, runs


def test_merged_runs_take_the_place_of_what_they_merge_and_its_files_go_with_the_next_step(tmp_path: Path) -> None:
    merger = Merger(tmp_path)
    table, runs = filled(tmp_path, merger)
    before = table.held()
    assert [run for run, _ in before] == [run for run, _ in runs]
    merger.go_on.set()
    table.close()
    assert all(path.exists() for _, path in before), "a step that began before may still read them"
    after = table.held()
    assert len(after) < len(before)
    assert {time for run, _ in after for time in range(run.first, run.last + 1)} == set(range(5))
    assert all(path.exists() for _, path in after)
    assert not any(path.exists() for run, path in before if run not in [kept for kept, _ in after])


def test_files_of_a_checkpoint_that_is_being_saved_stay(tmp_path: Path) -> None:
    merger = Merger(tmp_path)
    table, runs = filled(tmp_path, merger)
    captured = table.capture()
    assert [path for _, path in captured] == [path for _, path in runs]
    merger.go_on.set()
    table.close()
    table.held()
    assert all(path is not None and path.exists() for _, path in captured)
    table.saved([run for run, _ in captured])
    table.held()
    assert not all(path is not None and path.exists() for _, path in captured)


def test_restored_runs_are_the_stores_and_stay(tmp_path: Path) -> None:
    merger = Merger(tmp_path)
    merger.go_on.set()
    table = StateTable(merger)
    restored = [made(tmp_path, time) for time in range(8)]
    table.restore(restored, 7)
    assert all(path is None for _, path in table.capture())
    table.add([made(tmp_path, 8)])
    table.close()
    table.held()
    assert all(path.exists() for _, path in restored)


def test_a_merge_that_failed_is_told_before_the_next_step_and_not_within_one(tmp_path: Path) -> None:
    """What a step made is kept by then: an error would let it be made, and kept, once more."""

    def fails(runs: Sequence[RunRef], paths: Sequence[Path]) -> list[tuple[RunRef, Path]]:
        raise UnavailableError("STORE_FAILED", "the disk is full")

    table = StateTable(fails)
    runs = [made(tmp_path, time) for time in range(6)]
    for run in runs:
        table.add([run])
    table.close()
    assert [run for run, _ in table.capture()] == [run for run, _ in runs]
    with pytest.raises(UnavailableError, match="the disk is full"):
        table.held()
