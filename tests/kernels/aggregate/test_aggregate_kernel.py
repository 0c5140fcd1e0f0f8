"""The kernel's law: bits depend on the rows of the steps alone, and are those of plain, exact arithmetic."""

from __future__ import annotations

import datetime as dt
import pickle
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError, FencedError, InternalError, InvalidError
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate.layout import Function
from boatlift.kernels.step_state import STATE
from boatlift.state.digest import digest
from boatlift.state.key_groups import Share
from boatlift.storage.records.records import RunRef
from support.rows.keyed_state import (
    Driver,
    Hash,
    Oracle,
    canonical,
    crowded_hash,
    record_batch,
    rows_of,
    run_of,
    same_hash,
    spread_hash,
    take_step,
)

F64, I64, TEXT = pa.float64(), pa.int64(), pa.string()
EVERYTHING = Layout(
    (("a", I64), ("b", TEXT), ("c", F64)),
    (
        AggregateColumn("count_all", None, "n", None, I64),
        AggregateColumn("count", "x", "n_x", F64, I64),
        AggregateColumn("sum", "x", "s_x", F64, F64),
        AggregateColumn("avg", "x", "a_x", F64, F64),
        AggregateColumn("min", "x", "l_x", F64, F64),
        AggregateColumn("max", "x", "g_x", F64, F64),
        AggregateColumn("sum", "i", "s_i", I64, I64),
        AggregateColumn("avg", "i", "a_i", I64, F64),
        AggregateColumn("max", "i", "g_i", I64, I64),
        AggregateColumn("min", "t", "l_t", TEXT, TEXT),
        AggregateColumn("max", "t", "g_t", TEXT, TEXT),
        AggregateColumn("count", "t", "n_t", TEXT, I64),
    ),
)
# Without count(*) a step may leave a touched key's row as it is.
FEW = Layout(
    (("a", I64),), (AggregateColumn("max", "x", "g_x", F64, F64), AggregateColumn("sum", "x", "s_x", F64, F64))
)
HASHES: list[Hash] = [spread_hash, crowded_hash, same_hash]

some_float = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 1e300, -1e300, 1e-300, float("inf"), float("-inf"), float("nan")]),
    st.floats(),
)
some_row = st.fixed_dictionaries(
    {
        "a": st.one_of(st.none(), st.integers(0, 2)),
        "b": st.sampled_from([None, "", "x", "xy", "ÿ"]),
        "c": st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("-inf")]),
        "x": some_float,
        "i": st.one_of(st.none(), st.integers(-(2**58), 2**58), st.integers(-3, 3)),
        "t": st.one_of(st.none(), st.text(max_size=3)),
    }
)
some_steps = st.lists(st.lists(some_row, max_size=12), min_size=1, max_size=6)


@settings(max_examples=60)
@given(
    some_steps, st.sampled_from(HASHES), st.sampled_from([EVERYTHING, FEW]), st.integers(0, 2**32), st.integers(0, 3)
)
def test_bits_depend_on_the_rows_alone(
    steps: list[list[dict[str, Any]]], hash_of: Hash, layout: Layout, seed: int, power: int
) -> None:
    """Law: order, division, number of tasks and compaction cannot be seen; and the oracle says the same."""
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
            if number == 2:  # another number of tasks goes on with the same runs
                other = other.spread(2 ** ((power + 1) % 4))


@pytest.mark.parametrize("hash_of", HASHES)
def test_many_keys(tmp_path: Path, hash_of: Hash) -> None:
    """Enough rows for the ways that small inputs do not take."""
    layout = Layout(FEW.keys, (*FEW.aggregates, AggregateColumn("count_all", None, "n", None, I64)))
    keys = 12_000 if hash_of is spread_hash else 300
    oracle, plain = Oracle(layout), Driver(layout, tmp_path, hash_of)
    cut = Driver(layout, tmp_path, hash_of, tasks=4, seed=1)
    for step, size in enumerate((10_000, 30, 12_000)):
        rows = [{"a": (i * 7919 + step) % keys, "x": 0.1 * i} for i in range(size)]
        expected = oracle.step(rows)
        change, mark = plain.step(rows)
        assert change == expected
        assert cut.step(rows) == (expected, mark)


def day(number: int) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(days=number)


def moment(number: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=number)  # noqa: DTZ001 - timestamps without a zone are meant


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    (pa.int16(), [-(2**15), 0, 5, 2**15 - 1]),
    (pa.int8(), [-128, 0, 127]),
    (pa.bool_(), [False, True]),
    (pa.float64(), [-1.5, -0.0, 0.0, 1e300, float("inf"), float("-inf"), float("nan")]),
    (pa.float32(), [-1.5, -0.0, 0.0, 0.5, float("inf"), float("-inf"), float("nan")]),
    (pa.string(), ["", "a", "aa", "b", "é", "\U0001f6a2", "z"]),
    (pa.binary(), [b"", b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xff"]),
    (pa.date32(), [day(-1000), day(0), day(20000)]),
    (pa.timestamp("us"), [moment(-1), moment(0), moment(10**15)]),
    (pa.timestamp("us", tz="UTC"), [moment(n).replace(tzinfo=dt.UTC) for n in (-1, 0, 10**15)]),
    (pa.decimal128(10, 2), [Decimal("-5.25"), Decimal("0.00"), Decimal("99999999.99")]),
    (pa.decimal128(18, 0), [Decimal(-(10**18) + 1), Decimal(0), Decimal(10**18 - 1)]),
    (pa.decimal128(38, 4), [Decimal("-1234567890123456789012345.6789"), Decimal("0.0001"), Decimal(10**30)]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@pytest.mark.parametrize("hash_of", HASHES)
def test_every_type_is_a_key(tmp_path: Path, kind: pa.DataType, values: list[Any], hash_of: Hash) -> None:
    layout = Layout((("k", kind), ("j", I64)), (AggregateColumn("count_all", None, "n", None, I64),))
    oracle, driver = Oracle(layout), Driver(layout, tmp_path, hash_of, tasks=2, seed=4)
    for _ in range(3):
        rows = [{"k": value, "j": j} for value in (*values, None) for j in (1, None, 1, 2)]
        change, _ = driver.step(rows)
        assert change == oracle.step(rows)


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_every_type_has_a_minimum_and_a_maximum(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    layout = Layout(
        (("k", I64),), (AggregateColumn("min", "v", "low", kind, kind), AggregateColumn("max", "v", "high", kind, kind))
    )
    oracle, driver = Oracle(layout), Driver(layout, tmp_path, spread_hash, seed=5)
    for first in range(len(values)):
        rows = [{"k": 0, "v": None}, {"k": first, "v": values[first]}, {"k": -1, "v": values[-1 - first]}]
        change, _ = driver.step([*rows, {"k": 100, "v": values[first]}, {"k": 100, "v": values[0]}])
        assert change == oracle.step([*rows, {"k": 100, "v": values[first]}, {"k": 100, "v": values[0]}])


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.float32()])
def test_narrow_numbers_are_summed(tmp_path: Path, kind: pa.DataType) -> None:
    result = F64 if pa.types.is_floating(kind) else I64
    layout = Layout(
        (("k", I64),), (AggregateColumn("sum", "v", "s", kind, result), AggregateColumn("avg", "v", "m", kind, F64))
    )
    oracle, driver = Oracle(layout), Driver(layout, tmp_path, spread_hash, seed=6)
    for step in range(3):
        rows: list[dict[str, Any]] = [{"k": i % 3, "v": (i * 37 + step) % 256 - 128} for i in range(300)]
        rows = [{**row, "v": row["v"] / 2 if result == F64 else row["v"]} for row in rows]
        assert driver.step(rows)[0] == oracle.step(rows)


def integers(tmp_path: Path) -> Driver:
    return Driver(
        Layout((("k", I64),), (AggregateColumn("sum", "i", "s", I64, I64), AggregateColumn("avg", "i", "m", I64, F64))),
        tmp_path,
        spread_hash,
    )


def test_integers_may_pass_through_what_does_not_fit(tmp_path: Path) -> None:
    """Whether a sum overflows depends on its value after the step, not on the order of additions."""
    driver = integers(tmp_path)
    change, _ = driver.step([{"k": 1, "i": i} for i in (2**63 - 1, 2**63 - 1, -(2**63), -(2**63))])
    assert change == {(1, -2, canonical(-0.5), 1): 1}
    driver.step([{"k": 2, "i": 2**63 - 1}])
    with pytest.raises(DataError, match=r"\[OVERFLOW\] sum\(i\) of 1 keys"):
        driver.step([{"k": 2, "i": 1}])
    with pytest.raises(DataError, match=r"\[OVERFLOW\] sum\(i\) of 2 keys"):
        driver.step([{"k": k, "i": sign * 2**62} for k, sign in ((3, 1), (4, -1)) for _ in range(3)])


def test_an_average_never_overflows(tmp_path: Path) -> None:
    layout = Layout((("k", I64),), (AggregateColumn("avg", "i", "m", I64, F64),))
    driver, oracle = Driver(layout, tmp_path, spread_hash), Oracle(layout)
    for _ in range(2):
        rows = [{"k": k % 2, "i": (2**63 - 1) * (-1) ** k} for k in range(12)]
        assert driver.step(rows)[0] == oracle.step(rows)


def test_limbs_of_several_runs_carry_before_they_are_read(tmp_path: Path) -> None:
    driver = integers(tmp_path)
    for value in (2**62, 2**62 - 1):
        driver.step([{"k": 1, "i": value}])
    change, _ = driver.step([{"k": 1, "i": -1}])
    third = canonical(float(2**63 - 2) / 3)
    assert change == {(1, 2**63 - 1, canonical(2.0**62), -1): 1, (1, 2**63 - 2, third, 1): 1}


def test_a_row_before_is_the_row_after_of_the_step_before(tmp_path: Path) -> None:
    """Just below a midpoint by the upper limbs, above it by what three runs carry into them."""
    driver = Driver(FEW, tmp_path, spread_hash)
    driver.step([{"a": 1, "x": x} for x in (2.0**117, 2.0**64, -(2.0**32))])
    for _ in range(3):
        driver.step([{"a": 1, "x": 2.0**31 - 1}])
    assert driver.step([{"a": 1, "x": 0.0}]) == ({}, 0)


@pytest.mark.parametrize("known", range(40))
def test_many_needles_of_one_hash_in_a_small_run(tmp_path: Path, known: int) -> None:
    """A run that has few rows is looked up in the needles, not they in it."""
    driver, oracle = Driver(FEW, tmp_path, same_hash), Oracle(FEW)
    for rows in ([{"a": known, "x": 1.0}], [{"a": i, "x": 2.0} for i in range(40)]):
        assert driver.step(rows)[0] == oracle.step(rows)


def test_a_key_whose_row_stays_the_same_gives_nothing(tmp_path: Path) -> None:
    driver = Driver(FEW, tmp_path, spread_hash)
    driver.step([{"a": 1, "x": 5.0}, {"a": 2, "x": 1.0}])
    change, _ = driver.step([{"a": 1, "x": 0.0}, {"a": 1, "x": None}, {"a": 2, "x": 1.0}, {"a": 1, "x": 1e-40}])
    two = canonical(2.0)
    assert change == {(2, canonical(1.0), canonical(1.0), -1): 1, (2, canonical(1.0), two, 1): 1}
    assert driver.step([{"a": 1, "x": 0.0}]) == ({}, 0)
    assert len(driver.runs[0][STATE]) == 3  # the state grew all the same


def test_upserts_are_the_rows_after(tmp_path: Path) -> None:
    kernel = AggregateKernel(FEW, "p")
    first = take_step(kernel, [record_batch(FEW, [{"a": 1, "x": 1.0}], spread_hash)], [], tmp_path / "1", time=0)
    rows: list[dict[str, Any]] = [{"a": 1, "x": 2.0}, {"a": None, "x": None}]
    runs = [run_of(first)]
    second = take_step(kernel, [record_batch(FEW, rows, spread_hash)], runs, tmp_path / "2", time=1, upserts=True)
    expected = {(1, canonical(2.0), canonical(3.0), 1): 1, (None, None, None, 1): 1}
    assert rows_of(second) == expected
    assert second.batches[0].schema == FEW.output_schema


def test_the_run_of_a_step_depends_on_its_rows_alone(tmp_path: Path) -> None:
    """Also its bytes: the digest is the same whatever order rows came in, and whatever is in other runs."""
    rows = [{"a": i % 50, "x": 0.1 * i} for i in range(400)]
    made = set()
    none: list[dict[str, Any]] = []
    for name, given_rows, earlier in (("1", rows, none), ("2", rows[::-1], none), ("3", rows, rows)):
        kernel = AggregateKernel(FEW, "p")
        runs: list[RunRef] = []
        if earlier:
            batches = [record_batch(FEW, earlier, crowded_hash)]
            runs = [run_of(take_step(kernel, batches, [], tmp_path / "earlier", time=1))]
        run = run_of(take_step(kernel, [record_batch(FEW, given_rows, crowded_hash)], runs, tmp_path / name, time=7))
        assert (run.first, run.last, run.rows, run.size) == (7, 7, 50, (tmp_path / name).stat().st_size)
        made.add(run.digest)
    assert len(made) == 1


def test_no_rows_no_run(tmp_path: Path) -> None:
    empty = record_batch(FEW, [], spread_hash)
    for batches in ([], [empty], [empty, empty]):
        result = take_step(AggregateKernel(FEW, "p"), batches, [], tmp_path / "run", time=0)
        assert (result.runs, result.batches, result.rows, result.digest) == ({}, (), 0, 0)
    assert not (tmp_path / "run").exists()


def test_rows_of_another_task_are_refused(tmp_path: Path) -> None:
    batch = record_batch(FEW, [{"a": 1, "x": 1.0}], same_hash)
    with pytest.raises(InternalError, match="task 0 of 2 was handed rows of other key groups"):
        take_step(AggregateKernel(FEW, "p"), [batch], [], tmp_path / "run", time=0, share=Share(2, 0))
    with pytest.raises(InternalError, match="divides 4096"):
        take_step(AggregateKernel(FEW, "p"), [batch], [], tmp_path / "run", time=0, share=Share(3, 1))


def test_columns_must_be_as_declared(tmp_path: Path) -> None:
    kernel = AggregateKernel(FEW, "p")
    batch = record_batch(FEW, [{"a": 1, "x": 1.0}], same_hash)
    with pytest.raises(InvalidError, match=r"\[SCHEMA_MISMATCH\] input rows have no column x"):
        take_step(kernel, [batch.select(["a", "_hash"])], [], tmp_path / "run", time=0)
    wrong = pa.record_batch({"a": pa.array([1], pa.int32()), "x": batch["x"], "_hash": batch["_hash"]})
    with pytest.raises(InvalidError, match=r"type int32, declared is int64"):
        take_step(kernel, [wrong], [], tmp_path / "run", time=0)


def test_a_run_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"somebody's")
    with pytest.raises(FencedError, match="OBJECT_EXISTS"):
        take_step(
            AggregateKernel(FEW, "p"),
            [record_batch(FEW, [{"a": 1, "x": 1.0}], spread_hash)],
            [],
            tmp_path / "run",
            time=0,
        )
    assert (tmp_path / "run").read_bytes() == b"somebody's"


def test_sliced_input_is_read_at_its_offset(tmp_path: Path) -> None:
    rows = [
        {"a": None if i % 3 == 0 else i, "b": str(i), "c": None, "x": 1.0 * i, "i": i, "t": None} for i in range(30)
    ]
    batch = record_batch(EVERYTHING, rows, spread_hash).slice(7, 11)
    result = take_step(AggregateKernel(EVERYTHING, "p"), [batch], [], tmp_path / "run", time=0)
    assert rows_of(result) == Oracle(EVERYTHING).step(rows[7:18])


@pytest.mark.parametrize("kind", [F64, pa.float32()])
def test_every_nan_and_every_zero_is_one_key(tmp_path: Path, kind: pa.DataType) -> None:
    if kind == F64:
        bits = np.array([0x7FF8 << 48, 0xFFF8 << 48 | 1, 0x7FF0 << 48 | 1, 0, 1 << 63], np.uint64).view(np.uint8)
    else:
        bits = np.array([0x7FC00000, 0xFFC00001, 0x7F800001, 0, 1 << 31], np.uint32).view(np.uint8)
    layout = Layout((("k", kind),), (AggregateColumn("count_all", None, "n", None, I64),))
    keys = pa.Array.from_buffers(kind, 5, [None, pa.py_buffer(bits)])
    batch = pa.record_batch({"k": keys, "_hash": pa.array([5, 5, 5, 3, 3])})
    result = take_step(AggregateKernel(layout, "p"), [batch], [], tmp_path / "run", time=0)
    assert rows_of(result) == {(canonical(0.0), 2, 1): 1, (canonical(float("nan")), 3, 1): 1}
    with pa.ipc.open_file(tmp_path / "run") as file:
        assert file.get_batch(0)["key.0"].buffers()[1].to_pybytes() == bits.reshape(5, -1)[[3, 0]].tobytes()


def test_what_lies_under_a_null_counts_for_nothing(tmp_path: Path) -> None:
    """Arrow leaves the bits under a NULL undefined, and Spark does leave some there."""
    functions: tuple[Function, ...] = ("sum", "min", "max", "count")
    layout = Layout((("k", I64),), tuple(AggregateColumn(name, "v", name, I64, I64) for name in functions))
    mask = pa.array([True, False, False]).buffers()[1]
    keys, values = ([7, 7, 8], [1, 2**62, -(2**62)])
    batch = pa.record_batch(
        {
            "k": pa.Array.from_buffers(I64, 3, [mask, pa.py_buffer(np.array(keys))]),
            "v": pa.Array.from_buffers(I64, 3, [mask, pa.py_buffer(np.array(values))]),
            "_hash": pa.array([1, 1, 1]),
        }
    )
    result = take_step(AggregateKernel(layout, "p"), [batch], [], tmp_path / "run", time=0)
    assert rows_of(result) == {(7, 1, 1, 1, 1, 1): 1, (None, None, None, None, 0, 1): 1}


def test_the_kernel_travels_to_tasks() -> None:
    kernel = AggregateKernel(EVERYTHING, "p")
    copy = pickle.loads(pickle.dumps(kernel))
    assert copy == kernel
    assert copy.layout.description == kernel.layout.description


def test_digest_of_the_batches_is_the_steps(tmp_path: Path) -> None:
    rows = [{"a": i % 5, "b": "xyz"[: i % 4], "c": None, "x": 0.1 * i, "i": i, "t": str(i)} for i in range(60)]
    kernel = AggregateKernel(EVERYTHING, "p")
    first = take_step(kernel, [record_batch(EVERYTHING, rows, spread_hash)], [], tmp_path / "1", time=0)
    runs = [run_of(first)]
    second = take_step(kernel, [record_batch(EVERYTHING, rows[:20], spread_hash)], runs, tmp_path / "2", time=1)
    assert len((*second.replaced, *second.batches)) == 2
    assert sum(digest(batch) for batch in (*second.replaced, *second.batches)) % 2**64 == second.digest


@pytest.mark.parametrize(
    ("function", "argument", "given_type", "result"),
    [
        ("sum", "v", pa.string(), pa.string()),
        ("sum", "v", pa.date32(), pa.date32()),
        ("avg", "v", pa.bool_(), F64),
        ("min", "v", pa.list_(I64), pa.list_(I64)),
        ("count_all", "v", I64, I64),
        ("count", None, None, I64),
        ("median", "v", F64, F64),
    ],
)
def test_what_is_no_state_is_refused(function: Any, argument: str | None, given_type: Any, result: Any) -> None:
    with pytest.raises(InvalidError, match="UNSUPPORTED_AGGREGATE"):
        AggregateColumn(function, argument, "r", given_type, result)


def test_layouts_that_do_not_fit_are_refused() -> None:
    count = AggregateColumn("count_all", None, "n", None, I64)
    with pytest.raises(InvalidError, match="declared is int32"):
        AggregateColumn("count_all", None, "n", None, pa.int32())
    with pytest.raises(InvalidError, match="must differ"):
        Layout((("n", I64),), (count,))
    with pytest.raises(InvalidError, match="cannot be a key"):
        Layout((("k", pa.list_(I64)),), (count,))
    with pytest.raises(InvalidError, match="at least one aggregate"):
        Layout((("k", I64),), ())
    with pytest.raises(InvalidError, match="two types"):
        Layout((("k", I64),), (AggregateColumn("sum", "v", "s", I64, I64), AggregateColumn("max", "v", "m", F64, F64)))
