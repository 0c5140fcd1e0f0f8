"""A Parquet sink after a power loss at any moment, in every state that it could legally leave."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from boatlift.connectors.parquet.sink import ParquetSink
from boatlift.dataflow.contracts import Outcome
from boatlift.errors import BoatliftError
from connectors.conformance import context
from support.crash.power_loss import Act, Disk, Recorder, State, lay_out, moved
from support.worlds.facts import Unsynced

PLACE = Path("parent") / "history"
STEPS = 2


class LostError(Exception):
    """A state from which a sink does not go on as it must."""


class SinkRecorder(Recorder):
    """Records Arrow's writes when they are made durable: until then no reader knows the file's name."""

    def sync_file(self, path: Path) -> None:
        self.acts.append(Act("write", path, path.read_bytes()))
        super().sync_file(path)


def sink_in(base: Path, files: Unsynced) -> ParquetSink:
    return ParquetSink(base / PLACE, None, "none", files)


def put(sink: ParquetSink, step: int) -> Outcome:
    """A step without rows: its file has all that matters here."""
    return sink.commit(step, 0, f"digest {step}", [])


def go_on(base: Path, token: int, steps: int) -> list[Act]:
    """Open the sink and commit steps; a mark records how many steps it has reported."""
    files = SinkRecorder()
    sink = sink_in(base, files)
    newest = sink.open(context(token))
    held = 0 if newest is None else newest.step + 1
    files.mark(held)
    for step in range(held, held + steps):
        assert put(sink, step) is Outcome.APPENDED
        files.mark(step + 1)
    return files.acts


class Survivors:
    """Lays states out, opens the sink in each, and remembers how many steps it held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.held: dict[State, int] = {}

    def recover(self, state: State) -> int:
        """Open the sink as a new process does, compare all of its steps, and go on.

        Returns:
            How many steps survived.
        """
        if state not in self.held:
            lay_out(state, self._folder)
            try:
                self.held[state] = self._recover()
            except (AssertionError, BoatliftError) as error:
                raise LostError(f"from the state {state}") from error
            finally:
                shutil.rmtree(self._folder)
        return self.held[state]

    def _recover(self) -> int:
        sink = sink_in(self._folder, Unsynced())
        newest = sink.open(context(9))
        held = 0 if newest is None else newest.step + 1
        assert list(sink.verify()) == []
        assert [put(sink, step) for step in range(held + 1)] == [Outcome.DROPPED] * held + [Outcome.APPENDED]
        return held


def losses(disk: Disk, acts: list[Act], survivors: Survivors) -> int:
    """Loses power after each of the acts and compares every state with the steps reported by then.

    Returns:
        How many (moment, state) pairs there were.
    """
    told = count = 0
    for act in acts:
        disk.take(act)
        if act.verb == "mark":
            told = act.detail
        for state in disk.states():
            if survivors.recover(state) < told:
                raise LostError(f"{told} steps were reported, and one was lost by a power loss after {act}")
            count += 1
    return count


def without(acts: list[Act], base: Path, left_out: int, syncs: int) -> list[Act]:
    """Leaves one sync out of those there are."""
    places = [at for at, act in enumerate(acts) if act.is_sync and act.path.is_relative_to(base)]
    assert len(places) == syncs
    return [act for at, act in enumerate(acts) if at != places[left_out]]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "disk"
    base.mkdir()
    return base


@pytest.fixture
def survivors(tmp_path: Path) -> Survivors:
    return Survivors(tmp_path / "after")


def test_the_model_of_the_disk_ends_like_the_real_one(base: Path) -> None:
    disk = Disk(base)
    for act in [*go_on(base, 1, STEPS), *go_on(base, 2, 1)]:
        disk.take(act)
    modelled = base.parent / "modelled"
    lay_out(disk.now(), modelled)
    assert {p.relative_to(modelled): p.read_bytes() for p in modelled.rglob("*") if p.is_file()} == {
        p.relative_to(base): p.read_bytes() for p in base.rglob("*") if p.is_file()
    }


def test_a_power_loss_at_any_moment_loses_no_reported_step(base: Path, survivors: Survivors) -> None:
    acts = [*go_on(base, 1, STEPS), *go_on(base, 2, 1)]
    assert losses(Disk(base), acts, survivors) > 100
    assert set(survivors.held.values()) == set(range(STEPS + 2)), "each step was the newest to survive"


FIRST_SYNCS = 2 + 1 + 2 + 2 * STEPS
"""Of a first life: two names of folders, the identity, two folders, and file and name of each step."""


@pytest.mark.parametrize("left_out", range(FIRST_SYNCS))
def test_each_sync_is_needed(base: Path, survivors: Survivors, left_out: int) -> None:
    """With any one left out there is a moment and a state in which a step is lost or the sink does not open."""
    acts = without(go_on(base, 1, STEPS), base, left_out, FIRST_SYNCS)
    with pytest.raises(LostError):
        losses(Disk(base), acts, survivors)


def killed_anywhere(base: Path, survivors: Survivors, left_out: Path | None = None) -> int:
    """Kills a process after each of its acts; another opens what is seen and goes on; then the power fails.

    Args:
        base: Where.
        survivors: What holds the states.
        left_out: A folder that the second one does not sync when it opens the sink.
    """
    acts, count = go_on(base, 1, STEPS), 0
    for at in range(len(acts) + 1):
        disk = Disk(base)
        for act in acts[:at]:
            disk.take(act)
        again = base.parent / "again"
        lay_out(disk.now(), again)
        following = go_on(again, 2, 1)
        shutil.rmtree(again)
        following = [Act(act.verb, moved(act.path, again, base), moved(act.detail, again, base)) for act in following]
        if left_out is not None:
            without_it = Act("sync_folder", base / left_out)
            following = [act for at, act in enumerate(following) if act != without_it or act in following[:at]]
        count += losses(disk, following, survivors)
    return count


def test_objects_that_a_killed_owner_never_synced_are_durable_once_its_successor_names_them(
    base: Path, survivors: Survivors
) -> None:
    assert killed_anywhere(base, survivors) > 1000


def test_a_step_that_appears_after_the_sync_is_not_reported(base: Path) -> None:
    """A fenced owner's link that the kernel was in the middle of, before any sync."""

    class Late(Unsynced):
        def sync_folder(self, path: Path) -> None:
            if path == base / PLACE:
                first = path / "step-000000000000.parquet"
                first.with_name("step-000000000001.parquet").write_bytes(first.read_bytes())

    go_on(base, 1, 1)
    newest = sink_in(base, Late()).open(context(2))
    assert newest is not None
    assert newest.step == 0


@pytest.mark.parametrize("left_out", [Path(), PLACE.parent, PLACE, PLACE / "_boatlift"], ids=str)
def test_a_successor_needs_each_sync_of_what_it_finds(base: Path, survivors: Survivors, left_out: Path) -> None:
    with pytest.raises(LostError):
        killed_anywhere(base, survivors, left_out)
