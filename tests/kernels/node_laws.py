"""The laws of nodes, one test each: what `boatlift.kernels.network.node.Node` promises.

A node takes part by a `NodeCase` and a class that derives from `NodeLaws`.
"""

from __future__ import annotations

import pickle
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.kernels.network.node import KeepingNode, Node, NodeOutput, ZSet
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import key_hashes
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share, residues
from boatlift.state.merge import merge_runs
from boatlift.state.opened import RunsOnDemand, open_run
from boatlift.storage.records.records import RunRef
from kernels.kernel_laws import of_each_case
from support.engine.exchanges import exchanges_of, in_threads

__all__ = ["NodeCase", "NodeLaws", "Rows", "changes_of_tables", "rows_of"]

Row = tuple[Any, ...]
Rows = Counter[Row]


@dataclass(frozen=True)
class NodeCase:
    """A node, as the laws use it.

    Attributes:
        node: The node.
        schemas: The columns of each input.
        rows: For each input, rows that may come.
        function: The node's function: from the rows of its inputs to those of its result.
    """

    node: Node
    schemas: Sequence[pa.Schema]
    rows: Sequence[st.SearchStrategy[Row]]
    function: Callable[..., Rows]


@st.composite
def changes_of_tables(draw: st.DrawFn, rows: Sequence[st.SearchStrategy[Row]]) -> list[list[Rows]]:
    """Draw steps: for each input the rows that come, and go, with their weights. No row goes that is not there."""
    held: list[Rows] = [Counter() for _ in rows]
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        step = []
        for table, some in zip(held, rows, strict=True):
            change: Rows = Counter()
            for row in draw(st.lists(some, max_size=5)):
                change[row] += draw(st.sampled_from([1, 1, 1, 2, 300]))
            for row in sorted(table, key=repr):
                if draw(st.booleans()):
                    change[row] -= draw(st.sampled_from([1, table[row]]))
            for row, count in change.items():
                table[row] += count
            for row in [row for row, count in table.items() if not count]:
                del table[row]
            step.append(change)
        steps.append(step)
    return steps


def rows_of(change: ZSet | None) -> Rows:
    """Return a change as rows with weights; none of them is 0."""
    found: Rows = Counter()
    if change is not None:
        columns = [column.to_pylist() for column in change.columns]
        for at, weight in enumerate(change.weights.tolist()):
            found[tuple(canonical(column[at]) for column in columns)] += weight
    return Counter({row: count for row, count in found.items() if count})


def canonical(value: Any) -> Any:
    """Return a value that equals itself, and can be counted."""
    if isinstance(value, float):
        return "NaN" if np.isnan(value) else value + 0.0
    return tuple(map(canonical, value)) if isinstance(value, list) else value


class Tasks:
    """Takes steps of a node in a folder, as a number of tasks does; merges by chance.

    Args:
        node: Pickled on the way, as it is into tasks.
        schemas: The columns of its inputs.
        folder: Where runs go.
        tasks: The number of tasks.
        seed: None: rows in their order, and no merging.
        expiries: Part of the state to the column by which its rows expire.
    """

    def __init__(
        self,
        node: Node,
        schemas: Sequence[pa.Schema],
        folder: Path,
        *,
        tasks: int = 1,
        seed: int | None = None,
        expiries: Mapping[str, ExpiryColumn] | None = None,
    ) -> None:
        self.node: Node = pickle.loads(pickle.dumps(node))
        self.schemas, self.folder, self.tasks = schemas, folder, tasks
        self.chance = None if seed is None else random.Random(seed)
        self.runs: dict[str, list[tuple[RunRef, Path]]] = {part: [] for part in node.parts}
        self.expiries = expiries or {}
        self.passed: int | None = None
        self.time = self.files = 0
        folder.mkdir(exist_ok=True)

    def take(self, step: Sequence[Rows], passed: int | None = None) -> Rows:
        """Return the change of the result.

        Args:
            step: The change of each input.
            passed: The time that has passed after the step, in milliseconds; None: no row expires.
        """
        total: Rows = Counter()
        changes = [self._change(schema, rows) for schema, rows in zip(self.schemas, step, strict=True)]
        added: dict[str, list[tuple[RunRef, Path]]] = {part: [] for part in self.node.parts}
        exchanges = exchanges_of(self.tasks)

        def run(task: int) -> tuple[NodeOutput, dict[str, Path]]:
            share = Share(self.tasks, task)
            mine = [self._of_share(number, change, share) for number, change in enumerate(changes)]
            written: dict[str, Path] = {}

            def write_to(part: str) -> Path:
                written[part] = self.folder / f"{self.tasks}-{self.time}-{task}-{part.replace('/', '-')}"
                return written[part]

            runs = {part: self._opened(part, share) for part in self.node.parts}
            state = StepState(
                runs,
                write_to,
                self.time,
                share,
                self.time == 0,
                exchange=exchanges[task],
                expiries=self.expiries,
                passed={} if self.passed is None else dict.fromkeys(self.expiries, self.passed),
            )
            return self.node.step(mine, state), written

        for made, written in in_threads(run, self.tasks):
            (change,) = made.changes or (None,)
            assert change is None or len(change)
            for part, ref in made.runs.items():
                added[part].append((ref, written[part]))
            for row, count in rows_of(change).items():
                total[row] += count
        self.passed = passed
        for part, runs_of_part in added.items():
            self.runs[part] += runs_of_part
            self.runs[part] = [each for each in self.runs[part] if not self._has_expired(each[0])]
            if self.chance and self.chance.random() < 0.5:
                self.merge(part)
        self.time += 1
        return Counter({row: count for row, count in total.items() if count})

    def held(self) -> Rows | None:
        """Return the rows that the state has, of all tasks; None if the node does not keep them."""
        if not isinstance(self.node, KeepingNode) or not self.node.keeps_rows:
            return None
        total: Rows = Counter()
        for task in range(self.tasks):
            share = Share(self.tasks, task)
            runs = {part: self._opened(part, share) for part in self.node.parts}
            total.update(rows_of(self.node.held(runs, share)))
        return total

    def merge(self, part: str) -> None:
        """Merge all runs of a part, as one task."""
        self.files += 1
        path, codec = self.folder / f"merged-{self.files}", self.node.parts[part]
        opened = [open_run(each, run, codec=codec) for run, each in self.runs[part]]
        if opened:
            expiry, now = self.expiries.get(part), self.passed
            merged = merge_runs(codec, opened, path, processor="p", share=Share(), expiry=expiry, now=now)
            self.runs[part] = [] if merged is None else [(merged, path)]

    def _has_expired(self, run: RunRef) -> bool:
        return run.expires is not None and self.passed is not None and run.expires <= self.passed

    def _opened(self, part: str, share: Share) -> RunsOnDemand[Any]:
        held = [(run, str(path)) for run, path in self.runs[part] if Share(run.modulus, run.residue).meets(share)]
        return RunsOnDemand(held, self.node.parts[part])

    def _change(self, schema: pa.Schema, rows: Rows) -> ZSet:
        pairs = [(row, count) for row, count in rows.items() if count]
        if self.chance:
            self.chance.shuffle(pairs)
        columns = [pa.array([row[at] for row, _ in pairs], field.type) for at, field in enumerate(schema)]
        return ZSet(tuple(columns), np.array([count for _, count in pairs], np.int64))

    def _of_share(self, number: int, change: ZSet, share: Share) -> ZSet | None:
        places = self.node.keys(number)
        columns = change.columns if places is None else [change.columns[place] for place in places]
        hashes = key_hashes(columns, len(change))
        mine = change.take(np.flatnonzero(residues(hashes, share.modulus) == np.uint64(share.residue)))
        return mine if len(mine) else None


class NodeLaws:
    """All laws, for the case of a derived class."""

    case: ClassVar[NodeCase]
    most_tasks: ClassVar[int] = 8

    @of_each_case(60)
    @given(st.data(), st.integers(0, 2**32), st.integers(0, 3))
    def test_the_changes_add_up_to_the_result(self, data: st.DataObject, seed: int, power: int) -> None:
        """Law: however rows are ordered, divided and merged."""
        steps = data.draw(changes_of_tables(self.case.rows))
        with tempfile.TemporaryDirectory() as folder:
            plain = Tasks(self.case.node, self.case.schemas, Path(folder) / "plain")
            other = Tasks(
                self.case.node,
                self.case.schemas,
                Path(folder) / "other",
                tasks=min(2**power, self.most_tasks),
                seed=seed,
            )
            held: list[Rows] = [Counter() for _ in self.case.rows]
            total: Rows = Counter()
            for step in steps:
                for table, change in zip(held, step, strict=True):
                    for row, count in change.items():
                        table[tuple(map(canonical, row))] += count
                result = plain.take(step)
                assert other.take(step) == result
                for row, count in result.items():
                    total[row] += count
                tables = [Counter({row: count for row, count in table.items() if count}) for table in held]
                assert {row: count for row, count in total.items() if count} == self.case.function(*tables)
                assert other.held() in (None, self.case.function(*tables))

    @of_each_case(20)
    @given(st.data())
    def test_a_replay_gives_the_same_bits(self, data: st.DataObject) -> None:
        steps = data.draw(changes_of_tables(self.case.rows))
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for name, seed in (("1", None), ("2", 5)):
                tasks = Tasks(self.case.node, self.case.schemas, Path(folder) / name, seed=seed)
                tasks.merge = lambda part: None  # type: ignore[method-assign] - shuffled, not merged
                rows = [tasks.take(step) for step in steps]
                runs = {part: [(run.rows, run.size, run.digest) for run, _ in own] for part, own in tasks.runs.items()}
                found.append((rows, runs))
            assert found[0] == found[1]

    def test_a_step_without_rows_gives_nothing(self, tmp_path: Path) -> None:
        def no_file(part: str) -> Path:
            raise AssertionError(f"a run of {part} is written")

        state = StepState({part: _NoRuns() for part in self.case.node.parts}, no_file, 0, Share())
        made = self.case.node.step([None] * self.case.node.inputs, state)
        assert not any(made.changes)
        assert not made.runs

    def test_its_result_has_the_columns_that_it_names(self, tmp_path: Path) -> None:
        tasks = Tasks(self.case.node, self.case.schemas, tmp_path / "runs")
        rows = [self._example(some) for some in self.case.rows]
        changes = [tasks._change(schema, Counter(each)) for schema, each in zip(self.case.schemas, rows, strict=True)]
        state = StepState(
            {part: [] for part in self.case.node.parts}, lambda part: tmp_path / part.replace("/", "-"), 0, Share()
        )
        made = self.case.node.step(changes, state)
        (change,), (schema,) = made.changes, self.case.node.schemas
        assert change is not None, "the case's rows give something"
        assert [column.type for column in change.columns] == schema.types

    @staticmethod
    def _example(some: st.SearchStrategy[Row]) -> list[Row]:
        found: list[Row] = []

        @settings(max_examples=60, derandomize=True, database=None)
        @given(some)
        def collect(row: Row) -> None:
            found.append(row)

        collect()
        return found


class _NoRuns(list[Any]):
    def __iter__(self) -> Any:
        raise AssertionError("a run was opened")
