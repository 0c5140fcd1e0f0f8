"""Pieces on their way to a sink."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boatlift.dataflow.contracts import Staged
from boatlift.errors import InternalError, UnavailableError
from boatlift.tasks.staging import ArrowStager, read_pieces

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array([str(key) for key in keys])], schema=SCHEMA)


def test_a_piece_is_what_the_task_gave(tmp_path: Path) -> None:
    stager = ArrowStager(SCHEMA)
    receipts = [
        stager.stage(str(tmp_path), "b", 2, iter([batch(3), batch(), batch(4, 5)])),
        stager.stage(str(tmp_path), "a", 0, iter([batch(1, 2)])),
    ]
    assert receipts[0] == Staged(2, 3, str(tmp_path / "b"))
    assert [piece.to_pydict()["k"] for piece in read_pieces(5, receipts)] == [[1, 2], [3, 4, 5]]


@pytest.mark.parametrize("batches", [[], [batch()]])
def test_a_task_without_rows_leaves_no_file(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    assert ArrowStager(SCHEMA).stage(str(tmp_path), "a", 7, iter(batches)) == Staged(7, 0, "")
    assert list(tmp_path.iterdir()) == []
    assert read_pieces(0, [Staged(7, 0, "")]) == []


def test_whether_columns_are_declared_nullable_makes_no_difference(tmp_path: Path) -> None:
    strict = pa.schema([field.with_nullable(False) for field in SCHEMA])
    given = pa.RecordBatch.from_arrays(batch(1).columns, schema=strict)
    ArrowStager(SCHEMA).stage(str(tmp_path), "a", 0, iter([given]))


@pytest.mark.parametrize(
    ("strict", "nullable", "values"),
    [
        (pa.list_(pa.field("element", pa.int32(), False)), pa.list_(pa.field("element", pa.int32())), [[1, 2], None]),
        (pa.struct([pa.field("c", pa.int32(), False)]), pa.struct([pa.field("c", pa.int32())]), [{"c": 1}, None]),
        (pa.map_(pa.string(), pa.field("value", pa.int8(), False)), pa.map_(pa.string(), pa.int8()), [[("a", 1)], []]),
        (
            pa.list_(pa.struct([pa.field("c", pa.list_(pa.field("element", pa.int64(), False)), False)])),
            pa.list_(pa.struct([pa.field("c", pa.list_(pa.field("element", pa.int64())))])),
            [[{"c": [1]}], None],
        ),
    ],
    ids=["list", "struct", "map", "nested"],
)
def test_nor_does_it_inside_values(
    tmp_path: Path, strict: pa.DataType, nullable: pa.DataType, values: list[Any]
) -> None:
    for given, declared in ((strict, nullable), (nullable, strict)):
        rows = pa.record_batch([pa.array(values, given)], ["v"])
        stager = ArrowStager(pa.schema([("v", declared)]))
        receipt = stager.stage(str(tmp_path), "a", 0, iter([rows.slice(1), rows]))
        (piece,) = read_pieces(3, [receipt])
        assert piece.schema == stager.schema
        assert piece.column("v").to_pylist() == [values[1], *values]


@pytest.mark.parametrize(
    "other",
    [
        pa.record_batch({"k": pa.array([1], pa.int32()), "s": ["x"]}),
        pa.record_batch({"s": ["x"], "k": [1]}),
        pa.record_batch({"k": [1]}),
        pa.record_batch({"k": [1], "s": ["x"], "t": [1]}),
        pa.record_batch({"k": [[1]], "s": ["x"]}),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, other: pa.RecordBatch) -> None:
    with pytest.raises(InternalError, match=r"\[INTERNAL\] columns .* were staged for a sink opened for"):
        ArrowStager(SCHEMA).stage(str(tmp_path), "a", 0, iter([other]))


def test_pieces_are_held_against_their_receipts(tmp_path: Path) -> None:
    receipt = ArrowStager(SCHEMA).stage(str(tmp_path), "a", 0, iter([batch(1, 2)]))
    with pytest.raises(InternalError, match=r"3 rows"):
        read_pieces(3, [receipt])
    with pytest.raises(InternalError, match=r"has 2 rows, its receipt 3"):
        read_pieces(3, [Staged(0, 3, receipt.place)])
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\]"):
        read_pieces(2, [Staged(0, 2, str(tmp_path / "gone"))])
    Path(receipt.place).write_bytes(b"cut")
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\]"):
        read_pieces(2, [receipt])


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\]"):
        ArrowStager(SCHEMA).stage(str(tmp_path / "no"), "a", 0, iter([batch(1)]))


def test_a_stager_travels_to_other_processes(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        receipt = pool.apply(_stage, (ArrowStager(SCHEMA), str(tmp_path)))
    assert read_pieces(1, [receipt])[0].to_pydict() == {"k": [1], "s": ["1"]}


def _stage(stager: ArrowStager, folder: str) -> Staged:
    return stager.stage(folder, "a", 0, iter([batch(1)]))
