"""Iterations that are kept: a step that another number of tasks begins again goes on from there, to the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from boatlift.kernels.loop.by_iteration import IterationCodec, at_iteration
from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.node import NodeOutput, ZSet
from boatlift.kernels.step_state import LoopCheckpoint, NamedRows, SavedIterations, StepState
from boatlift.state.arrangement.arranged import arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.key_groups import Share
from boatlift.state.opened import RunsOnDemand
from boatlift.storage.blocks import BLOCK_BYTES
from boatlift.storage.records.records import RunRef
from boatlift.tasks.loop_checkpoint_files import MANIFEST, LoopCheckpointFiles
from kernels.loop import test_loops as loops
from kernels.node_laws import Rows as Bag
from kernels.node_laws import rows_of
from support.engine.exchanges import exchanges_of, in_threads

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

    files: LoopCheckpointFiles
    after: int | None
    iterations: list[int]
    blind: bool = False

    @property
    def due(self) -> bool:
        return self.files.due

    def read(self) -> SavedIterations | None:
        found = None if self.blind else self.files.read()
        self.iterations.append(-1 if found is None else found.number)
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
        self.blind = -1  # the number of a task that cannot read what was kept

    def files(self, time: int, share: Share, token: int) -> LoopCheckpointFiles:
        place = self.folder / "rounds" / str(time)
        return LoopCheckpointFiles(place, "loop", 0.0, "p", self.node.kept_codecs, time, share, token)

    def take(self, step: Sequence[Bag], tasks: int, *, token: int = 1, die_after: int | None = None) -> Bag:
        """Return the change of the result."""
        exchanges = exchanges_of(tasks)
        self.restored = []

        def run(task: int) -> tuple[NodeOutput, dict[str, Path]]:
            share, written = Share(tasks, task), dict[str, Path]()
            files = self.files(self.time, share, token)
            keeping: LoopCheckpoint = Dying(files, die_after, self.restored, task == self.blind)

            def write_to(part: str) -> Path:
                written[part] = self.folder / f"{self.time}-{token}-{task}-{part.replace('/', '-')}"
                return written[part]

            runs = {part: RunsOnDemand(runs, self.node.parts[part]) for part, runs in self.runs.items()}
            state = StepState(runs, write_to, self.time, share, exchange=exchanges[task], iterations=keeping)
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


def test_all_tasks_go_on_from_the_same_round(tmp_path: Path) -> None:
    node, first, _ = CASES["components"]
    assert isinstance(node, LoopNode)
    whole = Steps(node, make(tmp_path / "expected")).take(first, 1)
    killed = Steps(node, make(tmp_path / "killed"))
    with pytest.raises(KilledError):
        killed.take(first, 2, die_after=5)
    killed.blind = 1
    assert killed.take(first, 2, token=2) == whole
    assert sorted(killed.restored) == [-1, 5]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> LoopCheckpointFiles:
    """The rounds of a step that an owner kept before it was killed, as a later owner finds them."""
    node, first, _ = CASES["components"]
    assert isinstance(node, LoopNode)
    steps = Steps(node, tmp_path_factory.mktemp("killed"))
    with pytest.raises(KilledError):
        steps.take(first, 2, die_after=5)
    return steps.files(0, Share(1, 0), token=2)


def kept_in(iterations: LoopCheckpointFiles) -> int:
    found = iterations.read()
    return -1 if found is None else found.number


def test_a_file_of_which_any_byte_is_another_is_not_there(killed: LoopCheckpointFiles) -> None:
    folder = killed.folder / "1" / "loop"
    files = [folder / MANIFEST, *folder.glob("*.arrow")]
    assert len(files) > 6
    for file in files:
        content = file.read_bytes()
        step = 1 if file.name == MANIFEST else 331
        for place in {*range(0, len(content), step), len(content) - 1}:
            flipped = bytearray(content)
            flipped[place] ^= 1
            file.write_bytes(flipped)
            assert kept_in(killed) == -1, f"byte {place} of {file.name}"
        for damaged in (b"", content[:-100], content + b"x"):
            file.write_bytes(damaged)
            assert kept_in(killed) == -1
        file.unlink()
        assert kept_in(killed) == -1
        file.write_bytes(content)
    assert kept_in(killed) == 5


def test_a_folder_that_cannot_be_read_is_not_there_and_an_older_owners_is(killed: LoopCheckpointFiles) -> None:
    newer = replace(killed, folder=killed.folder, token=7)
    for folder in (killed.folder / "7", killed.folder / "7" / "loop"):
        folder.parent.mkdir(exist_ok=True)
        folder.write_text("no folder")
        assert kept_in(newer) == 5
        folder.unlink()
    nowhere = killed.folder.parent / "file"
    nowhere.write_text("no folder")
    assert kept_in(replace(killed, folder=nowhere)) == -1
    assert kept_in(replace(killed, folder=nowhere / "below")) == -1


def test_a_file_that_is_damaged_where_nothing_is_read_at_first_is_not_there(tmp_path: Path) -> None:
    node, *_ = CASES["paths"]
    assert isinstance(node, LoopNode)
    files = Steps(node, tmp_path).files(0, Share(1, 0), token=1)
    codec, columns = ArrangementCodec(node.circuit.variable), (pa.array(range(5000)), pa.array(range(5000)))
    rows = arranged(codec, columns, np.ones(5000, np.int64), key_hashes(columns, 5000))
    files.write(3, {"moved": (IterationCodec(codec), at_iteration(rows, 3))})
    files.written(3)
    assert kept_in(files) == 3
    (file,) = files.folder.rglob("*.arrow")
    content = file.read_bytes()
    assert len(content) > 5 * BLOCK_BYTES
    for place in range(BLOCK_BYTES // 2, len(content), BLOCK_BYTES):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert kept_in(files) == -1, f"byte {place}"


def test_owners_remove_what_older_ones_have_kept_and_nothing_of_newer_ones(tmp_path: Path) -> None:
    node, first, _ = CASES["components"]
    assert isinstance(node, LoopNode)
    steps = Steps(node, make(tmp_path / "killed"))
    folder = tmp_path / "killed" / "rounds" / "0"
    for token, after, there in ((4, 3, {"4"}), (9, 8, {"9"}), (4, 5, {"4", "9"})):
        with pytest.raises(KilledError):
            steps.take(first, 2, token=token, die_after=after)
        assert {each.name for each in folder.iterdir()} == there
    assert kept_in(steps.files(0, Share(1, 0), token=10)) == 8


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def taken_back(step: Sequence[Bag]) -> list[Bag]:
    return [Counter({row: -count for row, count in rows.items()}) for rows in step]
