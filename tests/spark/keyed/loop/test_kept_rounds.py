"""Rounds that are kept: a step that another number of tasks begins again goes on from there, to the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from boatlift.spark.keyed.kept_rounds import KeptRounds, NamedRows, SavedRounds
from boatlift.spark.keyed.key_groups import Share
from boatlift.spark.keyed.loop.node import LoopNode
from boatlift.spark.keyed.network.node import NodeOutput, ZSet
from boatlift.spark.keyed.opened import RunsOnDemand
from boatlift.spark.keyed.state import StepState
from boatlift.spark.tasks.round_files import MANIFEST, RoundFiles
from boatlift.storage.records.records import RunRef
from spark.keyed.loop import test_loops as loops
from spark.keyed.node_laws import Rows as Bag
from spark.keyed.node_laws import rows_of
from support.exchanges import exchanges_of, in_threads

LENGTH = 24
CHAIN = [Counter({(at, at + 1): 1 for at in range(LENGTH)} | {(at + 1, at): 1 for at in range(LENGTH)})]
UPWARDS = [Counter({(at, at + 1): 1 for at in range(LENGTH)})]
CUT = [Counter({(3, 4): -1, (4, 3): -1, (9, 30): 1, (30, 9): 1})]
CUT_UPWARDS = [Counter({(3, 4): -1, (9, 30): 1})]

CASES = {
    "components": (loops.TestComponents.case.node, CHAIN, CUT),
    "paths": (loops.TestPathsOfAGraph.case.node, UPWARDS, CUT_UPWARDS),
    "walks": (loops.TestWalks.case.node, UPWARDS * 2, CUT_UPWARDS * 2),
}


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Dying:
    """Keeps rounds, and dies after one of them has been kept."""

    files: RoundFiles
    after: int | None
    rounds: list[int]

    @property
    def due(self) -> bool:
        return self.files.due

    def read(self) -> SavedRounds | None:
        found = self.files.read()
        self.rounds.append(-1 if found is None else found.number)
        return found

    def write(self, number: int, rows: NamedRows) -> None:
        self.files.write(number, rows)

    def written(self, number: int) -> None:
        self.files.written(number)
        if self.after is not None and number >= self.after:
            raise KilledError


class Steps:
    """Takes steps of a loop in a folder."""

    def __init__(self, node: LoopNode, folder: Path) -> None:
        self.node, self.folder, self.time = node, folder, 0
        self.runs: dict[str, list[tuple[RunRef, str]]] = {part: [] for part in node.parts}
        self.restored: list[int] = []

    def take(self, step: Sequence[Bag], tasks: int, *, token: int = 1, die_after: int | None = None) -> Bag:
        """Return the change of the result."""
        exchanges = exchanges_of(tasks)
        place = self.folder / "rounds" / str(self.time)
        self.restored = []

        def run(task: int) -> tuple[NodeOutput, dict[str, Path]]:
            share, written = Share(tasks, task), dict[str, Path]()
            files = RoundFiles(place, 0.0, "p", self.node.kept_codecs, self.time, share, token)
            keeping: KeptRounds = Dying(files, die_after, self.restored)

            def write_to(part: str) -> Path:
                written[part] = self.folder / f"{self.time}-{token}-{task}-{part.replace('/', '-')}"
                return written[part]

            runs = {part: RunsOnDemand(runs, self.node.parts[part]) for part, runs in self.runs.items()}
            state = StepState(runs, write_to, self.time, share, exchange=exchanges[task], rounds=keeping)
            changes = [self._change(rows) if task == 0 else None for rows in step]
            return self.node.step(changes, state), written

        total: Bag = Counter()
        for made, written in in_threads(run, tasks):
            total.update(rows_of(made.changes[0]))
            for part, ref in made.runs.items():
                self.runs[part].append((ref, str(written[part])))
        self.time += 1
        return Counter({row: count for row, count in total.items() if count})

    @staticmethod
    def _change(rows: Bag) -> ZSet:
        columns = tuple(pa.array([row[at] for row in rows], pa.int64()) for at in range(len(loops.PAIRS)))

        return ZSet(columns, np.array(list(rows.values()), np.int64))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2)])
def test_a_step_goes_on_from_the_rounds_that_were_kept(tmp_path: Path, case: str, before: int, after: int) -> None:
    node, first, second = CASES[case]
    assert isinstance(node, LoopNode)
    expected = Steps(node, make(tmp_path / "expected"))
    killed = Steps(node, make(tmp_path / "killed"))
    for number, step in enumerate((first, second, taken_back(second))):
        whole = expected.take(step, 1)
        with pytest.raises(KilledError):
            killed.take(step, before, token=1 + number, die_after=5)
        assert set(killed.restored) == {-1}
        with pytest.raises(KilledError):
            killed.take(step, after, token=11 + number, die_after=9)
        assert min(killed.restored) >= 5
        assert killed.take(step, before, token=21 + number) == whole
        assert min(killed.restored) >= 9


def test_what_is_damaged_is_not_there(tmp_path: Path) -> None:
    node, first, _ = CASES["components"]
    assert isinstance(node, LoopNode)
    whole = Steps(node, make(tmp_path / "expected")).take(first, 1)
    for damage in (_cut, _lose, _no_manifest):
        killed = Steps(node, make(tmp_path / damage.__name__))
        with pytest.raises(KilledError):
            killed.take(first, 2, die_after=5)
        damage(killed.folder / "rounds" / "0")
        assert killed.take(first, 2, token=2) == whole
        assert min(killed.restored) == -1


def _cut(folder: Path) -> None:
    file = max(folder.glob("*.arrow"), key=lambda each: each.stat().st_size)
    file.write_bytes(file.read_bytes()[:-100])


def _lose(folder: Path) -> None:
    min(folder.glob("*.arrow")).unlink()


def _no_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("{")


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def taken_back(step: Sequence[Bag]) -> list[Bag]:
    return [Counter({row: -count for row, count in rows.items()}) for rows in step]
