"""What the tests of keyed state share: a plain oracle, and a driver that cuts, orders, spreads and compacts as told."""

from __future__ import annotations

import itertools
import math
import pickle
import random
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate.layout import VARIANCES
from boatlift.kernels.kernel import ROWS_INPUT, Kernel, StepOutput
from boatlift.kernels.step_state import STATE, StepState, StepTime
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.jobs.state_parts import drop_expired, times_of
from boatlift.spark.jobs.watermarks import InputWatermarks
from boatlift.state.digest import digest
from boatlift.state.key_groups import ALL_KEY_GROUPS, Share
from boatlift.state.merge import merge_runs
from boatlift.state.opened import RunsOnDemand
from boatlift.storage.records.payloads import NO_WATERMARK, RunsPayload, to_json
from boatlift.storage.records.records import RunRef

Row = tuple[Any, ...]
Fields = dict[str, Any]
Hash = Callable[[Row], int]


def canonical(value: Any) -> Any:
    """Makes a value comparable bit by bit; as a key, so that equal keys are equal."""
    return (
        ("bits", struct.pack("<d", value).hex() if not math.isnan(value) else "nan")
        if isinstance(value, float)
        else value
    )


def canonical_key(row: Row) -> Row:
    return tuple(canonical(value + 0.0 if isinstance(value, float) else value) for value in row)


def spread_hash(key: Row) -> int:
    return xxhash.xxh64_intdigest(repr(canonical_key(key)).encode())


def crowded_hash(key: Row) -> int:
    """Three hashes for all keys, in different key groups."""
    return (0, 5 << 52 | 7, (1 << 64) - 1)[spread_hash(key) % 3]


def same_hash(key: Row) -> int:
    return 7 << 52 | 7


def order(value: Any) -> Any:
    """A key function for min and max: NaN last, -0.0 before 0.0."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value))
    return value.encode() if isinstance(value, str) else value


class Oracle:
    """The aggregation in plain Python: keeps every row, and how often it counts."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.rows: dict[Row, list[dict[str, Any]]] = {}

    def step(self, rows: Sequence[Fields]) -> Counter[Row]:
        """Return the change of a step, as canonical rows with their weight."""
        before: dict[Row, Row | None] = {}
        for row in rows:
            key = canonical_key(tuple(row[name] for name, _ in self.layout.keys))
            if key not in before:
                before[key] = self._result(key)
            self.rows.setdefault(key, []).append(row)
        change: Counter[Row] = Counter()
        for key, old in before.items():
            new = self._result(key)
            if old != new:
                change += Counter({(*key, *old, -1): 1} if old is not None else {})
                change += Counter({(*key, *new, 1): 1} if new is not None else {})
        return change

    def _result(self, key: Row) -> Row | None:
        """Return the results of a key; None if it has no rows."""
        rows = [(row, row.get("_weight", 1)) for row in self.rows.get(key, [])]
        if not sum(weight for _, weight in rows):
            return None
        return tuple(self._aggregated(aggregate, rows) for aggregate in self.layout.aggregates)

    def _aggregated(self, aggregate: AggregateColumn, rows: Sequence[tuple[Fields, int]]) -> Any:
        if aggregate.argument is None:
            return sum(weight for _, weight in rows)
        values = [(row[aggregate.argument], weight) for row, weight in rows if row[aggregate.argument] is not None]
        count = sum(weight for _, weight in values)
        if aggregate.function == "count":
            return count
        if not count:
            return None
        if aggregate.function in ("min", "max"):
            found = [value for value, _ in values]
            return canonical((min if aggregate.function == "min" else max)(found, key=order))
        if pa.types.is_decimal(aggregate.output_type):
            return of_decimals(aggregate, values)
        if pa.types.is_integer(aggregate.output_type):
            return sum(value * weight for value, weight in values)
        if aggregate.function in VARIANCES:
            return variance(aggregate.function, values)
        total = exact(values)
        return canonical(total / count if aggregate.function == "avg" else total)


def variance(function: str, values: Sequence[tuple[float, int]]) -> Any:
    """Return the moment in fractions, rounded once, divided; None of too few values."""
    count, less = sum(weight for _, weight in values), int(function.endswith("_samp"))
    if count <= less:
        return None
    special: Counter[float] = Counter()
    for value, weight in values:
        special[value if math.isfinite(value) else math.inf] += weight
    if special[math.inf]:
        return canonical(math.nan)
    if count == 1:
        return canonical(0.0)
    if any(special[value] for value in special if abs(value) > 2.0**511):
        return canonical(math.inf)
    total = sum((Fraction(value) * weight for value, weight in values if math.isfinite(value)), Fraction(0))
    square = sum((Fraction(value) ** 2 * weight for value, weight in values if math.isfinite(value)), Fraction(0))
    result = rounded(square - total * total / count) / (count - less)
    return canonical(math.sqrt(result) if function.startswith("stddev") else result)


def of_decimals(aggregate: AggregateColumn, values: Sequence[tuple[Decimal, int]]) -> Decimal | None:
    """Sums or averages in integers, rounds half away from zero; None if the total or the result has too many digits."""
    assert aggregate.input_type is not None
    scale, result = aggregate.input_type.scale, aggregate.output_type
    total = sum(unscaled(value, scale) * weight for value, weight in values)
    if abs(total) >= 10 ** min(38, aggregate.input_type.precision + 10):
        return None
    if aggregate.function == "avg":
        count, magnitude = sum(weight for _, weight in values), abs(total) * 10 ** (result.scale - scale)
        total = (1 if total >= 0 else -1) * ((2 * magnitude + count) // (2 * count))
    return None if abs(total) >= 10**result.precision else scaled(total, result.scale)


def unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = Fraction(int("".join(map(str, digits)))) * Fraction(10) ** (exponent + scale)
    assert whole.denominator == 1
    return -int(whole) if sign else int(whole)


def scaled(value: int, scale: int) -> Decimal:
    return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale))


def exact(values: Sequence[tuple[float, int]]) -> float:
    """Return the sum of values times their weights, exact and rounded once."""
    kinds: Counter[str] = Counter()
    for value, weight in values:
        if not math.isfinite(value):
            kinds[str(value)] += weight
    special = [float(kind) for kind, count in kinds.items() if count]
    if special:
        return special[0] if len(special) == 1 else math.nan
    return rounded(sum((Fraction(v) * weight for v, weight in values if math.isfinite(v)), Fraction(0)))


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def record_batch(layout: Layout, rows: Sequence[dict[str, Any]], hash_of: Hash) -> pa.RecordBatch:
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in (*layout.keys, *layout.arguments)}
    if layout.weighted:
        columns["_weight"] = pa.array([row["_weight"] for row in rows], pa.int64())
    hashes = [hash_of(tuple(row[name] for name, _ in layout.keys)) for row in rows]
    columns["_hash"] = pa.array([h - (1 << 64) if h >> 63 else h for h in hashes], pa.int64())
    return pa.record_batch(columns)


def take_step(
    kernel: Kernel,
    batches: Sequence[pa.RecordBatch],
    runs: Sequence[RunRef],
    path: Path,
    *,
    time: int = 0,
    share: Share = ALL_KEY_GROUPS,
    upserts: bool = False,
) -> StepOutput:
    """Run a step of a kernel with one input over runs that stand where their names say."""
    opened = {part: RunsOnDemand([(run, run.name) for run in runs], codec) for part, codec in kernel.parts.items()}
    return kernel.step({ROWS_INPUT: batches}, StepState(opened, lambda _: path, time, share), upserts=upserts)


def merge_into(
    kernel: Kernel,
    runs: Sequence[RunRef],
    path: Path,
    share: Share = ALL_KEY_GROUPS,
    part: str = STATE,
    now: int | None = None,
) -> RunRef | None:
    """Merge runs of a part that stand where their names say; without the rows that have expired at a time."""
    codec, expiry = kernel.parts[part], kernel.expiries.get(part)
    opened = list(RunsOnDemand([(run, run.name) for run in runs], codec))
    return merge_runs(codec, opened, path, processor=kernel.processor, share=share, expiry=expiry, now=now)


def run_of(output: StepOutput) -> RunRef:
    """Return the run of a step of a kernel whose state has one part."""
    return output.runs[STATE]


def rows_of(output: StepOutput) -> Counter[Row]:
    """Return all rows of a step, as canonical rows."""
    return counted((*output.replaced, *output.batches))


def batch_maker(
    columns: pa.Schema, hash_of: Callable[[Fields], int]
) -> Callable[[str, Sequence[Fields]], pa.RecordBatch]:
    """Return what makes a batch of rows, with the hash of each row's key."""

    def batch(_: str, rows: Sequence[Fields]) -> pa.RecordBatch:
        made = {field.name: pa.array([row[field.name] for row in rows], field.type) for field in columns}
        hashes = [hash_of(row) for row in rows]
        made["_hash"] = pa.array([h - (1 << 64) if h >> 63 else h for h in hashes], pa.int64())
        return pa.record_batch(made)

    return batch


def counted(batches: Sequence[pa.RecordBatch]) -> Counter[Row]:
    return Counter(tuple(canonical(value) for value in row.values()) for batch in batches for row in batch.to_pylist())


Runs = dict[str, list[RunRef]]
"""Part to its runs."""


class Execution:
    """Takes steps of a kernel in a folder: spreads keys over tasks, orders and cuts rows by chance, merges by chance.

    Rows of the state that have expired are not there after a merge, and runs of none but such rows go.

    Args:
        kernel: Pickled on the way, as it is into tasks.
        batch_of: Makes a batch of the rows of an input.
        hash_of: The hash of the key of an input's row.
        folder: Where runs go.
        tasks: Number of tasks.
        seed: None: rows as they are, in one batch, no merging, and no run goes.
        now: The recorded clock of each step, and the bound of event time after it, in milliseconds; it never goes
            back. The kernel sees the rows that its `time` admits.
    """

    def __init__(
        self,
        kernel: Kernel,
        batch_of: Callable[[str, Sequence[Fields]], pa.RecordBatch],
        hash_of: Callable[[str, Fields], int],
        folder: Path,
        *,
        tasks: int = 1,
        seed: int | None = None,
        now: Callable[[int], int] = lambda step: 100 * step + 99,
    ) -> None:
        self.now = now
        self.kernel: Kernel = pickle.loads(pickle.dumps(kernel))
        self.batch_of, self.hash_of, self.folder, self.tasks = batch_of, hash_of, folder, tasks
        self.chance = None if seed is None else random.Random(seed)
        self.runs: list[Runs] = [{part: [] for part in self.kernel.parts} for _ in range(tasks)]
        self.time = self.files = 0

    def path(self) -> Path:
        self.files += 1
        return self.folder / f"{self.tasks}-{self.files}"

    def take(self, inputs: Mapping[str, Sequence[Fields]], *, upserts: bool = False) -> tuple[Counter[Row], int]:
        """Return the rows of a step and their digest."""
        found: Counter[Row] = Counter()
        digests = 0
        shuffled = {name: self._shuffled(rows) for name, rows in inputs.items()}
        for task in range(self.tasks):
            share = Share(self.tasks, task)
            batches = {
                name: self._batches(name, [row for row in rows if (self.hash_of(name, row) >> 52) % self.tasks == task])
                for name, rows in shuffled.items()
            }
            runs = {
                part: RunsOnDemand([(run, run.name) for run in self.runs[task][part]], codec)
                for part, codec in self.kernel.parts.items()
            }
            paths: dict[str, Path] = {}
            clock, expiries = self.clock(self.time), self.kernel.expiries
            write_to = partial(self._path_of, paths)
            state = StepState(runs, write_to, self.time, share, clock=clock, expiries=expiries)
            made = self.kernel.step(batches, state, upserts=upserts)
            given = (*made.replaced, *made.batches)
            assert all(batch.schema == self.kernel.output_schema and batch.num_rows for batch in given)
            assert made.rows == sum(batch.num_rows for batch in given)
            assert made.digest == sum(digest(batch) for batch in given) % (1 << 64)
            assert all(path.exists() == (part in made.runs) for part, path in paths.items())
            found += counted(given)
            digests += made.digest
            for part, run in made.runs.items():
                self.runs[task][part].append(run)
            if self.chance and self.chance.random() < 0.6:
                self.merge(task)
        self.time += 1
        return found, digests % (1 << 64)

    def merge(self, task: int) -> None:
        """Drop the runs that have expired, and merge a few of each part, chosen by chance."""
        assert self.chance is not None
        drop_expired(self.runs[task], dict.fromkeys(self.kernel.expiries, self.clock(self.time).now))
        for part, runs in self.runs[task].items():
            chosen = [run for run in runs if self.chance.random() < 0.7]
            if chosen:
                merged = self.merged(chosen, self.path(), Share(self.tasks, task), part)
                kept = [merged] if merged is not None else []  # the runs may have been those of other tasks' key groups
                self.runs[task][part] = [*kept, *(run for run in runs if run not in chosen)]

    def merged(
        self, runs: Sequence[RunRef], path: Path, share: Share = ALL_KEY_GROUPS, part: str = STATE
    ) -> RunRef | None:
        """Merge runs of a part without the rows that no step after the last of the runs may need."""
        now = self.clock(max(run.last for run in runs)).now if runs else None
        return merge_into(self.kernel, runs, path, share, part, now)

    def clock(self, step: int) -> StepTime:
        """Return the time of a step as the kernel sees it, after the steps before."""
        takes = []
        for number in range(step + 1):
            bounds = (self.now(number - 1) if number else NO_WATERMARK, self.now(number))
            sent = RunsPayload((), 0, "", self.now(number), number, bounds=bounds)
            takes.append(StepInput(number, (Message("rows", number, to_json(sent)),)))
        return times_of(self.kernel.time, takes, None, InputWatermarks(("a",), {"rows": "a"}))[-1].time

    def _path_of(self, paths: dict[str, Path], part: str) -> Path:
        paths[part] = self.path()
        return paths[part]

    def spread_to(self, other: Execution) -> None:
        """Have another execution go on from here, with its own number of tasks: every task reads all runs."""
        other.files, other.chance, other.time = self.files + 1000, self.chance, self.time
        other.runs = [
            {part: [run for runs in self.runs for run in runs[part]] for part in self.kernel.parts}
            for _ in range(other.tasks)
        ]

    def _shuffled(self, rows: Sequence[Fields]) -> list[Fields]:
        rows = list(rows)
        if self.chance:
            self.chance.shuffle(rows)
        return rows

    def _batches(self, name: str, rows: Sequence[Fields]) -> list[pa.RecordBatch]:
        cuts = [0, len(rows)]
        if self.chance and rows:
            cuts = sorted([*cuts, *(self.chance.randrange(len(rows)) for _ in range(3))])
        return [self.batch_of(name, rows[begin:end]) for begin, end in itertools.pairwise(cuts)]


class Driver(Execution):
    """An execution of an append-only aggregate."""

    def __init__(self, layout: Layout, folder: Path, hash_of: Hash, *, tasks: int = 1, seed: int | None = None) -> None:
        self.layout, self.hash_of_key = layout, hash_of
        super().__init__(
            AggregateKernel(layout, "p"),
            lambda _, rows: record_batch(layout, rows, hash_of),
            lambda _, row: hash_of(tuple(row[name] for name, _ in layout.keys)),
            folder,
            tasks=tasks,
            seed=seed,
        )

    def step(self, rows: Sequence[Fields]) -> tuple[Counter[Row], int]:
        """Return the change and its digest."""
        return self.take({ROWS_INPUT: rows})

    def spread(self, tasks: int) -> Driver:
        """Go on with another number of tasks."""
        other = Driver(self.layout, self.folder, self.hash_of_key, tasks=tasks)
        self.spread_to(other)
        return other
