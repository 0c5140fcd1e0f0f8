"""The task of a kernel with two inputs: rows come from Spark or from files, of one step or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.kernel import ROWS_INPUT, StepOutput
from boatlift.kernels.step_state import STATE, StepState
from boatlift.state.opened import LocatedRun
from boatlift.tasks.divide import DivideTask, pieces_of
from boatlift.tasks.kernel_task import KernelTask, MergeTask, TaskInput
from boatlift.tasks.parameters import JobParameters
from boatlift.tasks.stage import Output, TaskReceipt
from boatlift.tasks.staging import ArrowStager

I64 = pa.int64()
COUNT = AggregateColumn("count_all", None, "n", None, I64)
LAYOUT = Layout((("k", I64),), (COUNT,), weighted=True)


class BalanceKernel(AggregateKernel):
    """Counts the rows of a key on the left less those on the right, where the key has another name."""

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {"left": ("k", "_hash"), "right": ("key", "_hash")}

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,
    ) -> StepOutput:
        rows = [
            pa.record_batch({"k": batch[0], "_hash": batch["_hash"], "_weight": pa.array([weight] * len(batch), I64)})
            for name, weight in (("left", 1), ("right", -1))
            for batch in inputs[name]
        ]
        return AggregateKernel.step(self, {ROWS_INPUT: rows}, state, upserts=upserts)


KERNEL = BalanceKernel(LAYOUT, "balance")
SLOT = pa.record_batch({"id": pa.array([0], I64)})
"""The row that Spark hands to a task whose rows are in files."""

STEPS = [
    ([1, 1, 2, 5000], [1]),
    ([3], [2, 1]),
    ([], []),
    ([1], [3]),
]
"""The keys on the left and on the right, step by step."""

CHANGES = [
    {(1, 1, 1), (2, 1, 1), (5000, 1, 1)},
    {(1, 1, -1), (2, 1, -1), (3, 1, 1)},
    set(),
    {(1, 1, 1), (3, 1, -1)},
]


def hashes(keys: Sequence[int]) -> pa.Array:
    return pa.array([(key % 4096) << 52 for key in keys], pa.uint64()).view(I64)


def sides(step: int) -> list[pa.RecordBatch]:
    return [
        pa.record_batch({name: pa.array(keys, I64), "_hash": hashes(keys)})
        for name, keys in zip(("k", "key"), STEPS[step], strict=True)
    ]


def together(left: pa.RecordBatch, right: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the rows of both sides as Spark hands them over: with the number of the input, and their hash beside."""
    both = []
    for number, (side, other) in enumerate([(left, right), (right, left)]):
        missing = pa.nulls(len(side), other.to_struct_array().type)
        columns = {"_input": pa.array([number] * len(side), pa.int32())}
        columns |= {f"_input_{i}": side.to_struct_array() if i == number else missing for i in range(2)}
        both.append(pa.record_batch({**columns, "_hash": side["_hash"]}))
    return both


def in_one_stream(steps: range) -> list[pa.RecordBatch]:
    """Return the rows of several steps as Spark hands them over, with the number of the step."""
    batches = []
    for step in steps:
        for batch in together(*sides(step)):
            ordinals = pa.array([step - steps[0]] * len(batch), pa.int32())
            batches.append(batch.append_column("_ordinal", ordinals) if len(steps) > 1 else batch)
    return batches


class Owner:
    """Runs tasks and keeps the state, as the driver does."""

    def __init__(self, folder: Path, tasks: int) -> None:
        self.folder, self.tasks = folder, tasks
        outputs = tuple(Output(name, ArrowStager(LAYOUT.output_schema), name == "keyed") for name in ("all", "keyed"))
        self.task = KernelTask(KERNEL, LAYOUT.output_schema, 1, tasks, outputs, str(folder))
        self.runs: list[LocatedRun] = []

    def run(self, times: range, rows: list[list[pa.RecordBatch]], pieces: Any) -> list[list[TaskReceipt]]:
        given = self.folder / f"given-{times[0]}"
        given.write_bytes(msgspec.msgpack.encode(TaskInput({STATE: self.runs}, pieces)))
        step = JobParameters(times[0], times[-1], str(given))
        handed = [iter(each) for each in rows]
        receipts = [self.task.run(step, number, handed[number]) for number in range(self.tasks)]
        assert [next(each, None) for each in handed] == [None] * self.tasks, (
            "Spark uses no worker again that leaves rows"
        )
        for receipt in (receipt for by_time in receipts for receipt in by_time):
            self.runs += [(run, str(self.folder / Path(run.name).name)) for run in receipt.runs.values()]
        return [list(by_task) for by_task in zip(*receipts, strict=True)]

    def staged(self, receipts: Sequence[TaskReceipt], output: str) -> set[tuple[int, ...]]:
        found = set()
        for receipt in receipts:
            if run := receipt.staged[output]:
                table = pa.ipc.open_file(str(self.folder / Path(run.name).name)).read_all()
                assert table.num_rows == run.rows
                found |= {tuple(row.values()) for row in table.to_pylist()}
        return found


def test_a_step_whose_rows_spark_hands_over(tmp_path: Path) -> None:
    owner = Owner(tmp_path, 1)
    for step, expected in enumerate(CHANGES):
        (receipts,) = owner.run(range(step, step + 1), [in_one_stream(range(step, step + 1))], None)
        assert owner.staged(receipts, "all") == expected
        assert sum(receipt.rows_in for receipt in receipts) == sum(map(len, STEPS[step]))
        assert sum(receipt.rows for receipt in receipts) == len(expected)


def test_several_steps_in_one_job(tmp_path: Path) -> None:
    owner = Owner(tmp_path, 1)
    by_time = owner.run(range(4), [in_one_stream(range(4))], None)
    assert [owner.staged(receipts, "all") for receipts in by_time] == CHANGES


def test_steps_that_are_divided_among_tasks(tmp_path: Path) -> None:
    """Also: an output that keeps one row a key gets all but rows that are replaced; merged runs serve as well."""
    for tasks in (2, 4):
        folder = tmp_path / str(tasks)
        folder.mkdir()
        owner = Owner(folder, tasks)
        for step, expected in enumerate(CHANGES):
            divisions = [DivideTask("balance", tasks, str(folder)).run(iter([side])) for side in together(*sides(step))]
            pieces = pieces_of(divisions, tasks)
            (receipts,) = owner.run(range(step, step + 1), [[SLOT] for _ in range(tasks)], pieces)
            assert owner.staged(receipts, "all") == owner.staged(receipts, "keyed") == expected
            assert all(receipt.partition == number for number, receipt in enumerate(receipts))
            if step == 1:
                merges = MergeTask("balance", KERNEL.parts[STATE], 1, 2, tuple(owner.runs), str(folder))
                merged = [run for run in map(merges.run, range(2)) if run is not None]
                owner.runs = [(run, str(folder / Path(run.name).name)) for run in merged]


def test_replaced_rows_are_only_for_outputs_that_want_them(tmp_path: Path) -> None:
    owner = Owner(tmp_path, 1)
    sixes = pa.record_batch({"k": pa.array([6, 7], I64), "_hash": hashes([6, 7])})
    none = pa.record_batch({"key": pa.array([], I64), "_hash": hashes([])})
    owner.run(range(1), [together(sixes, none)], None)
    seven = pa.record_batch({"key": pa.array([7], I64), "_hash": hashes([7])})
    (receipts,) = owner.run(range(1, 2), [together(sixes.slice(0, 1), seven)], None)
    assert owner.staged(receipts, "all") == {(6, 1, -1), (6, 2, 1), (7, 1, -1)}
    assert owner.staged(receipts, "keyed") == {(6, 2, 1), (7, 1, -1)}
    assert receipts[0].rows == 3


def test_a_task_opens_no_run_of_other_key_groups(tmp_path: Path) -> None:
    owner = Owner(tmp_path, 2)

    def pieces(step: int) -> Any:
        return pieces_of([DivideTask("b", 2, str(tmp_path)).run(iter([side])) for side in together(*sides(step))], 2)

    owner.run(range(1), [[SLOT], [SLOT]], pieces(0))
    for run, path in owner.runs:
        if run.residue == 0:
            Path(path).unlink()
    given = tmp_path / "given"
    given.write_bytes(msgspec.msgpack.encode(TaskInput({STATE: owner.runs}, pieces(1))))
    (receipt,) = owner.task.run(JobParameters(1, 1, str(given)), 1, iter([SLOT]))
    assert owner.staged([receipt], "all") == {(1, 1, -1), (3, 1, 1)}
