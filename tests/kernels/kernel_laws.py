"""The laws of kernels, one test each: what `boatlift.kernels.kernel.Kernel` promises.

A kernel takes part by a `KernelCase` and a class that derives from `KernelLaws`.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boatlift.errors import InternalError
from boatlift.kernels.kernel import Kernel, StepOutput
from boatlift.kernels.step_state import KernelTime, StepState
from boatlift.state.digest import digest
from boatlift.state.key_groups import Share
from boatlift.state.opened import OpenRun, RunsOnDemand
from boatlift.storage.records.records import RunRef
from support.rows.keyed_state import Execution, Fields, Row, counted, merge_into

Step = Mapping[str, Sequence[Fields]]
"""The rows of each input."""


class StepOracle(Protocol):
    """The kernel's computation in plain Python."""

    def take(self, inputs: Step) -> Counter[Row]:
        """Return the rows that a step gives, in canonical form."""


@dataclass(frozen=True)
class KernelCase:
    """A kernel, as the laws use it.

    Attributes:
        kernel: The kernel.
        steps: Lists of steps that it can take one after the other.
        oracle: Makes an oracle that has seen no step.
        batch_of: Makes a batch of some rows of an input.
        hash_of: The hash of the key of an input's row.
        keeps_state: Whether a step that has rows may give a run.
        timed: Whether the rows of a step are of its time, so that two lists of steps make no longer one.
        now: The recorded clock of each step, and the bound of event time after it, in milliseconds.
    """

    kernel: Kernel
    steps: st.SearchStrategy[list[Step]]
    oracle: Callable[[], StepOracle]
    batch_of: Callable[[str, Sequence[Fields]], pa.RecordBatch]
    hash_of: Callable[[str, Fields], int]
    keeps_state: bool = True
    timed: bool = False
    now: Callable[[int], int] = lambda step: 100 * step + 99

    def run_in(self, folder: Path, *, tasks: int = 1, seed: int | None = None) -> Execution:
        folder.mkdir(exist_ok=True)
        return Execution(self.kernel, self.batch_of, self.hash_of, folder, tasks=tasks, seed=seed, now=self.now)


def of_each_case(examples: int) -> settings:
    """Return the settings of a law that several classes inherit: each draws its own case's steps.

    Under CI, where every run draws the same examples, half of them do.
    """
    return settings(
        max_examples=examples // 2 if "CI" in os.environ else examples,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )


class NoRuns(Sequence[OpenRun[Any]]):
    """Fails when a run is asked for."""

    def __len__(self) -> int:
        raise AssertionError("a run was opened")

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("a run was opened")


def empty_state(kernel: Kernel, folder: Path, share: Share | None = None) -> StepState:
    """Return the state before the first step; without a share, one whose runs nobody may open."""
    runs: Sequence[OpenRun[Any]] = NoRuns() if share is None else []
    return StepState(dict.fromkeys(kernel.parts, runs), lambda part: folder / f"run-{part}", 0, share or Share())


def between(before: Execution, after: Execution, share: Share, *, upserts: bool) -> StepOutput:
    """Return the rows between the states of two executions, of a share of the keys."""
    kernel = before.kernel
    states = [
        {
            part: RunsOnDemand([(run, run.name) for runs in each.runs for run in runs[part]], codec)
            for part, codec in kernel.parts.items()
        }
        for each in (before, after)
    ]
    return kernel.between(*states, share, upserts=upserts)


class KernelLaws:
    """All laws, for the case of a derived class."""

    case: ClassVar[KernelCase]

    @of_each_case(40)
    @given(st.data(), st.integers(0, 2**32), st.integers(0, 3))
    def test_rows_depend_on_the_rows_alone(self, data: st.DataObject, seed: int, power: int) -> None:
        """Law: order, division, number of tasks and merging cannot be seen; and the oracle says the same."""
        steps = data.draw(self.case.steps)
        with tempfile.TemporaryDirectory() as folder:
            oracle = self.case.oracle()
            plain = self.case.run_in(Path(folder) / "plain")
            other = self.case.run_in(Path(folder) / "other", tasks=2**power, seed=seed)
            for number, inputs in enumerate(steps):
                rows, mark = plain.take(inputs)
                assert rows == oracle.take(inputs)
                assert other.take(inputs) == (rows, mark)
                if number == 2:  # another number of tasks goes on with the same runs
                    before, other = other, self.case.run_in(Path(folder) / "other", tasks=2 ** ((power + 1) % 4))
                    before.spread_to(other)

    @of_each_case(20)
    @given(st.data())
    def test_a_replay_gives_the_same_bits(self, data: st.DataObject) -> None:
        """Law: rows, digests and runs, byte for byte; and no step changes a run that is there."""
        steps = data.draw(self.case.steps)
        with tempfile.TemporaryDirectory() as folder:
            executions = [self.case.run_in(Path(folder) / name, seed=seed) for name, seed in (("1", None), ("2", 5))]
            executions[1].merge = lambda task: None  # type: ignore[method-assign] - shuffled and cut, not merged
            for inputs in steps:
                assert executions[0].take(inputs) == executions[1].take(inputs)
            runs = [
                [(part, run.rows, run.size, run.digest) for part, runs in execution.runs[0].items() for run in runs]
                for execution in executions
            ]
            assert runs[0] == runs[1]
            written = [run for runs in executions[0].runs[0].values() for run in runs]
            assert all(Path(run.name).stat().st_size == run.size for run in written)
            assert self.case.keeps_state or not runs[0]

    @of_each_case(20)
    @given(st.data())
    def test_merging_changes_nothing(self, data: st.DataObject) -> None:
        """Law: a step over a merged run gives what it gives over all; the order of merges leaves no trace in bytes.

        Nor does it matter to a step whether a merge has left out the rows that have expired.
        """
        more = [] if self.case.timed else data.draw(self.case.steps)
        *steps, last = [*more, *data.draw(self.case.steps)]
        with tempfile.TemporaryDirectory() as folder:
            plain = self.case.run_in(Path(folder) / "runs")
            for inputs in steps:
                plain.take(inputs)
            ways: list[dict[str, list[RunRef]]] = [{}, {}, {}]
            for number, (part, runs) in enumerate(plain.runs[0].items()):
                place = Path(folder) / str(number)
                place.mkdir()
                at_once = merge_into(plain.kernel, runs, place / "at once", part=part)
                half = merge_into(plain.kernel, runs[1::2], place / "half", part=part)
                parts = [*runs[::2], *([half] if half else [])]
                by_halves = merge_into(plain.kernel, parts, place / "by halves", part=part)
                assert (at_once is None) == (by_halves is None)
                if at_once and by_halves and (at_once.first, at_once.last) == (by_halves.first, by_halves.last):
                    assert at_once.digest == by_halves.digest
                unexpired = plain.merged(runs, place / "unexpired", part=part)
                for way, merged in zip(ways, (at_once, by_halves, unexpired), strict=True):
                    way[part] = [merged] if merged else []
            expected = plain.take(last)
            for way, merged_runs in enumerate(ways, 1):
                other = self.case.run_in(Path(folder) / "runs")
                plain.spread_to(other)
                other.time -= 1
                other.runs = [merged_runs]
                other.files += 1000 * way
                assert other.take(last) == expected

    @of_each_case(20)
    @given(st.data())
    def test_upserts_are_all_but_what_is_replaced(self, data: st.DataObject) -> None:
        steps = data.draw(self.case.steps)
        with tempfile.TemporaryDirectory() as folder:
            whole, upserts = (self.case.run_in(Path(folder) / name) for name in ("1", "2"))
            for inputs in steps:
                rows, _ = whole.take(inputs)
                kept, _ = upserts.take(inputs, upserts=True)
                assert kept <= rows
                # Each row that is left out has weight -1, and its key has a row after.
                keys = len(self.case.kernel.keys)
                held = {row[:keys] for row in kept if row[-1] == 1}
                assert all(row[-1] == -1 and row[:keys] in held for row in rows - kept)

    @of_each_case(40)
    @given(st.data(), st.integers(0, 3), st.booleans())
    def test_states_give_the_rows_between_them(self, data: st.DataObject, power: int, upserts: bool) -> None:
        """Law: the rows between two states, however divided, are the steps to the one less those to the other."""
        if not self.case.kernel.gives_rows:
            return
        pasts = [data.draw(self.case.steps), data.draw(self.case.steps)]
        if data.draw(st.booleans()):
            pasts[1] = [*pasts[0], *pasts[1]]
        with tempfile.TemporaryDirectory() as folder:
            sides = [self.case.run_in(Path(folder) / str(number), tasks=2) for number in range(2)]
            sums: list[Counter[Row]] = [Counter(), Counter()]
            for side, total, steps in zip(sides, sums, pasts, strict=True):
                for inputs in steps:
                    for row, count in side.take(inputs)[0].items():
                        total[row[:-1]] += count * row[-1]
            made = [between(*sides, Share(2**power, task), upserts=upserts) for task in range(2**power)]
        sums[1].subtract(sums[0])
        expected = Counter({(*row, 1 if weight > 0 else -1): abs(weight) for row, weight in sums[1].items() if weight})
        given = [batch for each in made for batch in (*each.replaced, *each.batches)]
        found = counted(given)
        keys = len(self.case.kernel.keys)
        come = {row[:keys] for row in expected if upserts and row[-1] == 1}
        needed = Counter({row: n for row, n in expected.items() if row[-1] == 1 or row[:keys] not in come})
        assert found in (expected, needed)
        assert sum(each.rows for each in made) == sum(batch.num_rows for batch in given)
        assert sum(each.digest for each in made) % 2**64 == sum(map(digest, given)) % 2**64
        assert not any(each.runs for each in made)

    def test_a_step_without_rows_changes_nothing(self, tmp_path: Path) -> None:
        """Law: no row, no run; and no run is opened, but by a kernel that looks for timers."""
        empty = {name: self.case.batch_of(name, []) for name in self.case.kernel.inputs}
        for batches in ([], [0], [0, 0]):
            inputs = {name: [batch for _ in batches] for name, batch in empty.items()}
            share = None if self.case.kernel.time is KernelTime.NONE else Share()
            made = self.case.kernel.step(inputs, empty_state(self.case.kernel, tmp_path, share))
            assert (dict(made.runs), made.batches, made.replaced, made.rows, made.digest) == ({}, (), (), 0, 0)
        assert not list(tmp_path.iterdir())
        assert all(merge_into(self.case.kernel, [], tmp_path / "run", part=p) is None for p in self.case.kernel.parts)

    def test_inputs_have_the_columns_that_the_kernel_names(self) -> None:
        for name, columns in self.case.kernel.inputs.items():
            assert set(columns) == set(self.case.batch_of(name, []).schema.names)
            assert "_hash" in columns

    @of_each_case(10)
    @given(st.data())
    def test_rows_of_another_task_are_refused(self, data: st.DataObject) -> None:
        case = self.case
        for inputs in data.draw(case.steps):
            for name, rows in inputs.items():
                for row in rows:
                    if not row.get("_weight", 1):
                        continue
                    wrong = Share(2, 1 - (case.hash_of(name, row) >> 52) % 2)
                    batches = {other: [case.batch_of(other, [row] if other == name else [])] for other in inputs}
                    with (
                        tempfile.TemporaryDirectory() as folder,
                        pytest.raises(InternalError, match="handed rows of other key groups"),
                    ):
                        case.kernel.step(batches, empty_state(case.kernel, Path(folder), wrong))
