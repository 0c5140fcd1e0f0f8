"""Sums and averages of decimals: exact, rounded once, and the true total decides whether they overflow."""

from __future__ import annotations

import random
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate.exact_decimal import (
    average_of_decimals,
    average_type,
    cut_decimals,
    sum_of_decimals,
    sum_type,
)
from boatlift.kernels.aggregate.exact_sum import settle
from boatlift.state.column import Column
from support.rows.keyed_state import (
    Driver,
    Hash,
    Oracle,
    crowded_hash,
    record_batch,
    run_of,
    same_hash,
    scaled,
    spread_hash,
    take_step,
)

I64 = pa.int64()
TYPES = [(2, 0), (2, 2), (10, 2), (18, 4), (19, 4), (28, 10), (38, 0), (38, 18), (38, 36), (38, 38)]


def aggregates(name: str, kind: pa.DataType) -> tuple[AggregateColumn, ...]:
    return (
        AggregateColumn("sum", name, f"s_{name}", kind, sum_type(kind)),
        AggregateColumn("avg", name, f"a_{name}", kind, average_type(kind)),
        AggregateColumn("min", name, f"l_{name}", kind, kind),
        AggregateColumn("max", name, f"g_{name}", kind, kind),
        AggregateColumn("count", name, f"n_{name}", kind, I64),
    )


def layout_of(*types: tuple[int, int], null: bool = True) -> Layout:
    made = [aggregate for p, s in types for aggregate in aggregates(f"v{p}_{s}", pa.decimal128(p, s))]
    return Layout((("k", I64),), tuple(made), null_on_overflow=null)


def values_of(precision: int) -> st.SearchStrategy[int]:
    most = 10**precision - 1
    return (
        st.integers(-most, most) | st.sampled_from([0, 1, -1, most, -most]) | st.integers(-min(99, most), min(99, most))
    )


some_row = st.fixed_dictionaries(
    {
        "k": st.none() | st.integers(0, 2),
        **{f"v{p}_{s}": st.none() | values_of(p).map(lambda n, s=s: scaled(n, s)) for p, s in TYPES},
    }
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(some_row, max_size=8), min_size=1, max_size=5),
    st.sampled_from([spread_hash, crowded_hash, same_hash]),
    st.integers(0, 2**32),
    st.integers(0, 3),
)
def test_bits_depend_on_the_rows_alone(steps: list[list[dict[str, Any]]], hash_of: Hash, seed: int, power: int) -> None:
    """Law: order, division, number of tasks and compaction cannot be seen; integer arithmetic says the same."""
    layout = layout_of(*TYPES)
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(layout)
        plain = Driver(layout, Path(folder) / "plain", hash_of)
        other = Driver(layout, Path(folder) / "other", hash_of, tasks=2**power, seed=seed)
        plain.folder.mkdir()
        other.folder.mkdir()
        for number, rows in enumerate(steps):
            expected = oracle.step(rows)
            change, mark = plain.step(rows)
            assert change == expected
            assert other.step(rows) == (expected, mark)
            if number == 2:
                other = other.spread(2 ** ((power + 1) % 4))


@pytest.mark.parametrize(("precision", "scale"), TYPES)
def test_many_keys_of_every_type(tmp_path: Path, precision: int, scale: int) -> None:
    layout, chance = layout_of((precision, scale)), random.Random(precision * 100 + scale)
    oracle, plain = Oracle(layout), Driver(layout, tmp_path, spread_hash)
    cut = Driver(layout, tmp_path, spread_hash, tasks=4, seed=1)
    most = 10**precision - 1
    name = f"v{precision}_{scale}"
    for size in (3000, 20, 3000):
        drawn = [chance.choice([most, chance.randint(-most, most), chance.randint(-9, 9)]) for _ in range(size)]
        rows = [{"k": chance.randrange(400), name: scaled(n, scale) if chance.random() < 0.9 else None} for n in drawn]
        expected = oracle.step(rows)
        change, mark = plain.step(rows)
        assert change == expected
        assert cut.step(rows) == (expected, mark)


COUNTS = [1, 2, 3, 7, 32, 160, 10**9, 2**32 - 1, 2**32, 2**32 + 1, 2**40 - 1, 2**50 + 3, 2**62, 2**63 - 1]


@pytest.mark.parametrize(("precision", "scale"), TYPES)
def test_averages_are_rounded_once_for_any_count(precision: int, scale: int) -> None:
    kind, chance = pa.decimal128(precision, scale), random.Random(precision * 100 + scale)
    result, digits = average_type(kind), sum_type(kind).precision
    most = 10**digits
    for count in COUNTS:
        half = count // 2 * 10**scale
        for total in (
            0,
            1,
            half,
            max(half - 1, 0),
            half + 1,
            most - 1,
            most,
            chance.randrange(most),
            chance.randrange(10**9),
        ):
            for signed in (total, -total):
                found, overflow = average_of_decimals(_limbs(signed), np.array([count], np.int64), kind)
                average = (2 * total * 10 ** (result.scale - scale) + count) // (2 * count)
                assert overflow[0] == (total >= most or average >= 10**result.precision)
                if not overflow[0]:
                    expected = scaled(average if signed >= 0 else -average, result.scale)
                    assert Column(result, found).to_arrow()[0].as_py() == expected


@given(
    st.lists(st.integers(-(10**38) + 1, 10**38 - 1), max_size=6), st.sampled_from([(28, 10), (38, 0), (8, 2), (10, 2)])
)
@example([10**38 - 1], (38, 0))
@example([10**38 - 1, 1], (38, 0))
@example([-(10**38) + 1, -1], (38, 0))
@example([-(2**64)], (38, 0))
@example([10**18 - 1], (8, 2))
@example([10**18], (8, 2))
@example([-(10**18)], (8, 2))
def test_the_total_alone_decides_about_overflow(values: list[int], kind: tuple[int, int]) -> None:
    total = sum(values)
    found, overflow = sum_of_decimals(_limbs(total), 1, pa.decimal128(*kind))
    result = sum_type(pa.decimal128(*kind))
    assert overflow[0] == (abs(total) >= 10**result.precision)
    if not overflow[0]:
        assert Column(result, found).to_arrow()[0].as_py() == scaled(total, result.scale)


def _limbs(total: int) -> dict[int, Any]:
    """Cuts an integer into settled limbs."""
    raw = {i: np.array([abs(total) >> (32 * i) & 0xFFFFFFFF], np.int64) for i in range(6)}
    return settle({limb: part if total >= 0 else -part for limb, part in raw.items()})


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-(2**64), 2**64), min_size=1, max_size=20))
def test_limbs_of_decimals_are_the_values(values: list[int]) -> None:
    column = Column.from_arrow(pa.array([Decimal(v) for v in values], pa.decimal128(38, 0)), pa.decimal128(38, 0))
    limbs = cut_decimals(column.values)
    assert [sum(int(part[row]) << (32 * limb) for limb, part in limbs.items()) for row in range(len(values))] == values


MOST = Decimal("9" * 38)
LEAST = MOST.copy_negate()  # `-MOST` would round to the digits of the context
OVERFLOWING = Layout(
    (("k", I64),),
    (AggregateColumn("sum", "v", "s", pa.decimal128(38, 0), pa.decimal128(38, 0)),),
    null_on_overflow=False,
)


def test_a_total_that_comes_back_is_kept(tmp_path: Path) -> None:
    """Spark's own result depends on the order here: a partial sum of 39 digits is lost."""
    driver = Driver(OVERFLOWING, tmp_path, spread_hash)
    change, _ = driver.step([{"k": 1, "v": v} for v in (MOST, MOST, LEAST, LEAST, Decimal(-7))])
    assert change == {(1, Decimal(-7), 1): 1}


def test_an_overflow_is_an_error_or_null(tmp_path: Path) -> None:
    refusing = Driver(OVERFLOWING, tmp_path, spread_hash)
    refusing.step([{"k": 1, "v": MOST}])
    with pytest.raises(DataError, match=r"\[OVERFLOW\] s, a sum of decimals.*decimal128\(38, 0\) holds for 1 keys"):
        refusing.step([{"k": 1, "v": Decimal(1)}, {"k": 2, "v": MOST}])
    giving = Driver(
        Layout(OVERFLOWING.keys, OVERFLOWING.aggregates, null_on_overflow=True), tmp_path / "null", spread_hash
    )
    giving.folder.mkdir()
    giving.step([{"k": 1, "v": MOST}])
    assert giving.step([{"k": 1, "v": Decimal(1)}, {"k": 2, "v": MOST}])[0] == {
        (1, MOST, -1): 1,
        (1, None, 1): 1,
        (2, MOST, 1): 1,
    }
    assert giving.step([{"k": 1, "v": Decimal(-1)}])[0] == {(1, None, -1): 1, (1, MOST, 1): 1}


def test_a_row_before_that_was_null_is_taken_back_as_null_also_where_overflow_is_an_error(tmp_path: Path) -> None:
    giving = Driver(Layout(OVERFLOWING.keys, OVERFLOWING.aggregates, null_on_overflow=True), tmp_path, spread_hash)
    giving.step([{"k": 1, "v": MOST}, {"k": 1, "v": MOST}])
    giving.kernel = AggregateKernel(OVERFLOWING, "p")
    assert giving.step([{"k": 1, "v": LEAST}])[0] == {(1, None, -1): 1, (1, MOST, 1): 1}


def test_the_run_of_a_step_depends_on_its_rows_alone(tmp_path: Path) -> None:
    layout = layout_of((38, 18), (10, 2))
    rows = [{"k": i % 50, "v38_18": scaled((-1) ** i * 10 ** (i % 38), 18), "v10_2": scaled(i, 2)} for i in range(400)]
    made = set()
    for name, given_rows in (("1", rows), ("2", rows[::-1])):
        batch = record_batch(layout, given_rows, crowded_hash)
        run = run_of(take_step(AggregateKernel(layout, "p"), [batch], [], tmp_path / name, time=7))
        assert run is not None
        made.add(run.digest)
    assert len(made) == 1
