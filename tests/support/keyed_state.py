"""What the tests of keyed state share: a plain oracle, and a driver that cuts, orders, spreads and compacts as told."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from boatlift.operators.aggregate.kernel import AggregateColumn, AggregateKernel, Layout
from boatlift.spark.keyed.kernel import ROWS_INPUT, KeyedKernel, StepOutput
from boatlift.spark.keyed.key_groups import ALL_KEY_GROUPS, Share
from boatlift.spark.keyed.opened import open_runs
from boatlift.storage.records.records import RunRef

Row = tuple[Any, ...]
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
    """The aggregation in plain Python: keeps every row."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.rows: dict[Row, list[dict[str, Any]]] = {}

    def step(self, rows: Sequence[dict[str, Any]]) -> Counter[Row]:
        """Gives the change of a step, as canonical rows with their weight."""
        touched: dict[Row, None] = {}
        before: dict[Row, Row | None] = {}
        for row in rows:
            key = canonical_key(tuple(row[name] for name, _ in self.layout.keys))
            if key not in touched:
                touched[key] = None
                before[key] = self._result(key) if key in self.rows else None
            self.rows.setdefault(key, []).append(row)
        change: Counter[Row] = Counter()
        for key in touched:
            after = self._result(key)
            if before[key] != after:
                old = before[key]
                if old is not None:
                    change[(*key, *old, -1)] += 1
                change[(*key, *after, 1)] += 1
        return change

    def _result(self, key: Row) -> Row:
        rows = self.rows[key]
        result: list[Any] = []
        for aggregate in self.layout.aggregates:
            if aggregate.argument is None:
                result.append(len(rows))
                continue
            values = [row[aggregate.argument] for row in rows if row[aggregate.argument] is not None]
            if aggregate.function == "count":
                result.append(len(values))
            elif not values:
                result.append(None)
            elif aggregate.function in ("min", "max"):
                result.append(canonical((min if aggregate.function == "min" else max)(values, key=order)))
            elif pa.types.is_decimal(aggregate.output_type):
                result.append(of_decimals(aggregate, values))
            elif pa.types.is_integer(aggregate.output_type):
                result.append(sum(values))
            else:
                total = exact(values)
                result.append(canonical(total / len(values) if aggregate.function == "avg" else total))
        return tuple(result)


def of_decimals(aggregate: AggregateColumn, values: Sequence[Decimal]) -> Decimal | None:
    """Sums or averages in integers, rounds half away from zero; None if the total or the result has too many digits."""
    assert aggregate.input_type is not None
    scale, result = aggregate.input_type.scale, aggregate.output_type
    total = sum(unscaled(value, scale) for value in values)
    if abs(total) >= 10 ** min(38, aggregate.input_type.precision + 10):
        return None
    if aggregate.function == "avg":
        count, magnitude = len(values), abs(total) * 10 ** (result.scale - scale)
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


def exact(values: Sequence[float]) -> float:
    """Sums exactly and rounds once."""
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return math.fsum(special) if len(set(map(str, special))) == 1 else math.nan
    return rounded(sum(map(Fraction, values), Fraction(0)))


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def record_batch(layout: Layout, rows: Sequence[dict[str, Any]], hash_of: Hash) -> pa.RecordBatch:
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in (*layout.keys, *layout.arguments)}
    hashes = [hash_of(tuple(row[name] for name, _ in layout.keys)) for row in rows]
    columns["_hash"] = pa.array([h - (1 << 64) if h >> 63 else h for h in hashes], pa.int64())
    return pa.record_batch(columns)


def take_step(
    kernel: KeyedKernel,
    batches: Sequence[pa.RecordBatch],
    runs: Sequence[RunRef],
    path: Path,
    *,
    time: int = 0,
    share: Share = ALL_KEY_GROUPS,
    upserts: bool = False,
) -> StepOutput:
    """Run a step of a kernel with one input over runs that stand where their names say."""
    opened = open_runs([(run, run.name) for run in runs], kernel.payload)
    return kernel.step({ROWS_INPUT: batches}, opened, path, time=time, share=share, upserts=upserts)


def merge_into(kernel: KeyedKernel, runs: Sequence[RunRef], path: Path, share: Share = ALL_KEY_GROUPS) -> RunRef | None:
    """Merge runs that stand where their names say."""
    return kernel.merge(list(open_runs([(run, run.name) for run in runs], kernel.payload)), path, share=share)


def rows_of(output: StepOutput) -> Counter[Row]:
    """Return all rows of a step, as canonical rows."""
    return counted((*output.replaced, *output.batches))


def counted(batches: Sequence[pa.RecordBatch]) -> Counter[Row]:
    return Counter(tuple(canonical(value) for value in row.values()) for batch in batches for row in batch.to_pylist())


class Driver:
    """Runs steps in a folder: spreads keys over tasks, orders and cuts rows by chance, compacts by chance."""

    def __init__(self, layout: Layout, folder: Path, hash_of: Hash, *, tasks: int = 1, seed: int | None = None) -> None:
        """A seed of None: rows as they come, in one batch, and no compaction."""
        self.layout, self.folder, self.hash_of, self.tasks = layout, folder, hash_of, tasks
        self.chance = None if seed is None else random.Random(seed)
        self.kernel = AggregateKernel(layout, "p")
        self.runs: list[list[RunRef]] = [[] for _ in range(tasks)]
        self.time = self.files = 0

    def path(self) -> Path:
        self.files += 1
        return self.folder / f"{self.tasks}-{self.files}"

    def step(self, rows: Sequence[dict[str, Any]]) -> tuple[Counter[Row], int]:
        """Gives the change and its digest."""
        rows = list(rows)
        if self.chance:
            self.chance.shuffle(rows)
        change: Counter[Row] = Counter()
        digest = 0
        for task in range(self.tasks):
            mine = [
                row
                for row in rows
                if (self.hash_of(tuple(row[name] for name, _ in self.layout.keys)) >> 52) % self.tasks == task
            ]
            cuts = [0, len(mine)]
            if self.chance and mine:
                cuts = sorted([*cuts, *(self.chance.randrange(len(mine)) for _ in range(3))])
            batches = [record_batch(self.layout, mine[a:b], self.hash_of) for a, b in itertools.pairwise(cuts)]
            share = Share(self.tasks, task)
            result = take_step(self.kernel, batches, self.runs[task], self.path(), time=self.time, share=share)
            assert (result.run is None) == (not mine)
            assert result.rows == sum(batch.num_rows for batch in (*result.replaced, *result.batches))
            change += rows_of(result)
            digest += result.digest
            if result.run is not None:
                self.runs[task].append(result.run)
            if self.chance and self.chance.random() < 0.6:
                self.merge(task)
        self.time += 1
        return change, digest % (1 << 64)

    def merge(self, task: int) -> None:
        """Merges a few runs, whichever they are."""
        assert self.chance is not None
        chosen = [ref for ref in self.runs[task] if self.chance.random() < 0.7]
        if chosen:
            merged = merge_into(self.kernel, chosen, self.path(), Share(self.tasks, task))
            kept = [merged] if merged is not None else []  # the runs may have been those of other tasks' key groups
            self.runs[task] = [*kept, *(ref for ref in self.runs[task] if ref not in chosen)]

    def spread(self, tasks: int) -> Driver:
        """Goes on with another number of tasks: every task reads all runs."""
        other = Driver(self.layout, self.folder, self.hash_of, tasks=tasks)
        other.files = self.files + 1000
        other.chance, other.time = self.chance, self.time
        other.runs = [[ref for runs in self.runs for ref in runs] for _ in range(tasks)]
        return other
