"""Runs on disk: every byte counts, and what is not the run that was written is refused."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import xxhash

from boatlift.errors import BoatliftError, DataError, UnavailableError
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate.partials import PartialsCodec
from boatlift.kernels.step_state import STATE
from boatlift.state import opened as opened_module
from boatlift.state.key_groups import ALL_KEY_GROUPS
from boatlift.state.merge import merge_runs
from boatlift.state.opened import forget_runs, open_run
from boatlift.storage.records.records import RunRef
from support.rows.keyed_state import Driver, record_batch, run_of, same_hash, spread_hash, take_step

F64, I64, TEXT = pa.float64(), pa.int64(), pa.string()
LAYOUT = Layout(
    (("k", I64), ("t", TEXT)),
    (
        AggregateColumn("count_all", None, "n", None, I64),
        AggregateColumn("sum", "x", "s", F64, F64),
        AggregateColumn("min", "x", "low", F64, F64),
    ),
)
ROWS = [
    {"k": None if i == 3 else i, "t": None if i == 5 else "t" * i, "x": None if i == 7 else 0.1 * i} for i in range(9)
]


@pytest.fixture
def run(tmp_path: Path) -> RunRef:
    forget_runs()
    made = take_step(
        AggregateKernel(LAYOUT, "totals"), [record_batch(LAYOUT, ROWS, spread_hash)], [], tmp_path / "run", time=5
    )
    return run_of(made)


def condition(path: Path, expect: RunRef, layout: Layout = LAYOUT) -> str:
    """Return what is said of a run that is opened, and all of whose rows are read."""
    forget_runs()
    with pytest.raises(BoatliftError) as caught:
        read_whole(path, expect, layout)
    assert isinstance(caught.value, DataError)
    assert str(path) in caught.value.message
    return caught.value.condition


def read_whole(path: Path, expect: RunRef, layout: Layout = LAYOUT) -> int:
    codec = PartialsCodec(layout)
    return sum(len(each.cut(codec, 0, len(each))) for each in open_run(path, expect, codec=codec).segments)


def recorded(path: Path) -> RunRef:
    """Return the record of a file whose bytes all are its tail."""
    content = path.read_bytes() if path.exists() else b""
    return RunRef(str(path), 0, 0, 1, 0, 1, len(content), xxhash.xxh3_128_hexdigest(content), tail=len(content))


def test_a_run_says_what_it_is(run: RunRef) -> None:
    content = Path(run.name).read_bytes()
    assert (run.first, run.last, run.modulus, run.residue, run.rows) == (5, 5, 1, 0, 9)
    assert run.tail is not None
    assert (run.size, run.digest) == (len(content), xxhash.xxh3_128_hexdigest(content[-run.tail :]))
    opened = open_run(run.name, run, codec=PartialsCodec(LAYOUT))
    assert opened.rows == 9
    assert {key: opened.meta[key] for key in ("format", "processor", "first", "last", "modulus", "residue")} == {
        "format": 1,
        "processor": "totals",
        "first": 5,
        "last": 5,
        "modulus": 1,
        "residue": 0,
    }


def test_the_bytes_are_those_of_the_format_page(run: RunRef) -> None:
    """docs/formats/run.md: a plain Arrow reader sees these columns, sorted by hash."""
    with pa.ipc.open_file(run.name) as file:
        table = file.read_all()
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("hash", "uint64"),
        ("key.0", "int64"),
        ("key.1", "string"),
        ("nulls.0", "int8"),
        ("rows", "int8"),
        ("sum.0.-2", "int32"),
        ("sum.0.-1", "int32"),
        ("sum.0.0", "int8"),
        ("min.0", "int64"),
    ]
    hashes = table["hash"].to_pylist()
    assert hashes == sorted(hashes)
    row = table.slice(table["key.1"].to_pylist().index("t" * 8), 1).to_pylist()[0]
    sum_ = sum(row[f"sum.0.{limb}"] * 2.0 ** (32 * limb) for limb in (-2, -1, 0))
    assert (row["rows"], row["nulls.0"], sum_) == (1, 0, 0.1 * 8)


def test_a_key_without_a_value_makes_no_column_wide(tmp_path: Path) -> None:
    layout = Layout(
        (("k", I64),), (AggregateColumn("min", "i", "low", I64, I64), AggregateColumn("max", "i", "high", I64, I64))
    )
    batch = record_batch(layout, [{"k": 1, "i": None}, {"k": 2, "i": -100}, {"k": 2, "i": 100}], spread_hash)
    take_step(AggregateKernel(layout, "p"), [batch], [], tmp_path / "run", time=0)
    with pa.ipc.open_file(tmp_path / "run") as file:
        assert [str(file.schema.field(name).type) for name in ("min.0", "max.0")] == ["int8", "int8"]


def test_infinities_are_counted_not_summed(tmp_path: Path) -> None:
    layout = Layout((("k", I64),), (AggregateColumn("sum", "x", "s", F64, F64),))
    values = [1.0, float("inf"), float("-inf"), float("-inf"), float("nan")]
    batch = record_batch(layout, [{"k": 1, "x": x} for x in values], spread_hash)
    take_step(AggregateKernel(layout, "p"), [batch], [], tmp_path / "run", time=0)
    with pa.ipc.open_file(tmp_path / "run") as file:
        row = file.read_all().drop_columns(["hash", "key.0"]).to_pylist()
    assert row == [{"-inf.0": 2, "inf.0": 1, "nan.0": 1, "rows": 5, "sum.0.0": 1}]


def test_every_flipped_byte_of_what_is_read_is_found(run: RunRef) -> None:
    """Of a small run all bytes are in one block, which its rows are read with, or in the tail."""
    path = Path(run.name)
    content = bytearray(path.read_bytes())
    for place in range(len(content)):
        content[place] ^= 1 << (place % 8)
        path.write_bytes(content)
        content[place] ^= 1 << (place % 8)
        assert condition(path, run) == "CORRUPT"
    path.write_bytes(content)
    forget_runs()
    assert read_whole(path, run) == 9


def test_a_cut_or_grown_file_is_found_without_reading_it(run: RunRef) -> None:
    path = Path(run.name)
    content = path.read_bytes()
    for other in (b"", content[:-1], content[: len(content) // 2], content + b"\0"):
        path.write_bytes(other)
        forget_runs()
        with pytest.raises(DataError, match=rf"CORRUPT.* has {len(other)} bytes, recorded are {len(content)}"):
            open_run(path, run, codec=PartialsCodec(LAYOUT))


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(b"not an arrow file, and long enough to be one")
    assert condition(path, recorded(path)) == "CORRUPT"
    with pa.ipc.new_file(path, pa.schema([("a", I64)])) as file:
        file.write_batch(pa.record_batch({"a": [1]}))
    assert condition(path, recorded(path)) == "CORRUPT"
    assert condition(tmp_path / "nothing", recorded(tmp_path / "nothing")) == "MISSING_OBJECT"


def test_a_newer_format_and_another_layout_are_refused(
    run: RunRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Layout(LAYOUT.keys, LAYOUT.aggregates[:2])
    assert condition(Path(run.name), run, other) == "PROGRAM_CHANGED"
    monkeypatch.setattr("boatlift.state.run_file.FORMAT", 2)
    newer = merge_runs(
        PartialsCodec(LAYOUT),
        [open_run(run.name, run, codec=PartialsCodec(LAYOUT))],
        tmp_path / "newer",
        processor="totals",
        share=ALL_KEY_GROUPS,
    )
    assert newer is not None
    assert condition(tmp_path / "newer", newer) == "NEWER_FORMAT"


class OtherCodec(PartialsCodec):
    @property
    def kind(self) -> str:
        return "other"


def test_a_run_of_another_kind_is_refused(run: RunRef, tmp_path: Path) -> None:
    other, known = OtherCodec(LAYOUT), PartialsCodec(LAYOUT)
    opened = open_run(run.name, run, codec=known)
    copy = merge_runs(other, [opened], tmp_path / "other", processor="totals", share=ALL_KEY_GROUPS)
    assert copy is not None
    with pa.ipc.open_file(copy.name) as file:
        assert json.loads(file.schema.metadata[b"boatlift.run"])["kind"] == "other"
    assert open_run(copy.name, copy, codec=other).rows == run.rows
    forget_runs()
    for each, codec in ((run, other), (copy, known)):
        with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].* holds the state of another computation"):
            open_run(each.name, each, codec=codec)


def test_a_run_is_opened_once_in_a_process(run: RunRef, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_run(run.name, run, codec=PartialsCodec(LAYOUT))
    Path(run.name).unlink()  # what is mapped stays readable
    assert open_run(run.name, run, codec=PartialsCodec(LAYOUT)) is first
    assert first.segments[0].cut(PartialsCodec(LAYOUT), 0, 9).values.rows.sum() == 9
    monkeypatch.setattr(opened_module, "_KEEP_OPEN", 0)
    forget_runs([run.name])
    with pytest.raises(DataError, match="MISSING_OBJECT"):
        open_run(run.name, run, codec=PartialsCodec(LAYOUT))


def test_an_open_run_is_checked_against_what_is_expected_now(run: RunRef) -> None:
    assert open_run(run.name, run, codec=PartialsCodec(LAYOUT)).digest == run.digest
    with pytest.raises(DataError, match="CORRUPT"):
        open_run(run.name, msgspec.structs.replace(run, digest="0" * 32), codec=PartialsCodec(LAYOUT))


def test_the_oldest_are_closed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_runs()
    driver = Driver(LAYOUT, tmp_path, spread_hash)
    for _ in range(3):
        driver.step(ROWS)
    forget_runs()
    monkeypatch.setattr(opened_module, "_KEEP_OPEN", 2)
    a, b, c = driver.runs[0][STATE]
    first, second = (open_run(ref.name, ref, codec=PartialsCodec(LAYOUT)) for ref in (a, b))
    assert open_run(a.name, a, codec=PartialsCodec(LAYOUT)) is first
    open_run(c.name, c, codec=PartialsCodec(LAYOUT))
    assert open_run(a.name, a, codec=PartialsCodec(LAYOUT)) is first
    assert open_run(b.name, b, codec=PartialsCodec(LAYOUT)) is not second


def test_removed_runs_do_not_hold_their_space_for_ever(tmp_path: Path) -> None:
    forget_runs()
    driver = Driver(LAYOUT, tmp_path, spread_hash)
    for _ in range(100):
        driver.step(ROWS)
        for ref in driver.runs[0][STATE][:-1]:
            Path(ref.name).unlink()
        driver.runs[0][STATE] = driver.runs[0][STATE][-1:]
    assert len(opened_module._opened) < 70


@pytest.mark.parametrize("times", [1, 10_000])  # within the file's buffer, and beyond it
def test_a_full_or_missing_disk_is_said(tmp_path: Path, times: int) -> None:
    batch = record_batch(LAYOUT, [row | {"k": n} for n in range(times) for row in ROWS], same_hash)
    with pytest.raises(UnavailableError, match="STORE_FAILED"):
        take_step(AggregateKernel(LAYOUT, "p"), [batch], [], tmp_path / "no folder" / "run", time=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # no file may grow beyond that
    try:
        with pytest.raises(UnavailableError, match=r"STORE_FAILED.*File too large"):
            take_step(AggregateKernel(LAYOUT, "p"), [batch], [], tmp_path / "run", time=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "run").exists()
