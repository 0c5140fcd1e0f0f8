"""The Parquet sink beyond the laws of every sink: what other readers see, what is damaged, what is durable."""

from __future__ import annotations

import json
import math
import os
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from boatlift.connectors import parquet
from boatlift.connectors.parquet.sink import ParquetSink
from boatlift.dataflow.contracts import Outcome, SinkContext
from boatlift.errors import DataError, FencedError, InvalidError, UnavailableError
from boatlift.storage.filesystem import FileSystem
from connectors.conformance import SCHEMA, STORE, context, ordered, put, rows_of, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def filled(folder: Path, steps: int = 3, **options: Any) -> ParquetSink:
    sink = parquet(folder, **options)
    sink.open(context())
    for step in range(steps):
        put(sink, folder, step)
    return sink


def leave_things(folder: Path) -> None:
    """What crashes and other tools may leave behind."""
    hidden = folder / "_boatlift" / "owner-000000000001"
    content = (folder / "step-000000000000.parquet").read_bytes()
    (hidden / "step-000000000099.parquet").write_bytes(content)
    (hidden / "step-000000000098.parquet").write_bytes(content[:50])
    (folder / "_half.parquet").write_bytes(content[:50])
    (folder / ".step-000000000097.parquet").write_bytes(content)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "none"])
def test_pyarrow_reads_exactly_the_committed_rows(tmp_path: Path, compression: str) -> None:
    folder = tmp_path / "history"
    sink = filled(folder, compression=compression)
    leave_things(folder)
    for table in (
        pq.read_table(folder),
        ds.dataset(folder, format="parquet").to_table(),
        ds.dataset(folder).to_table(),
    ):
        assert table.column_names == SCHEMA.names
        assert ordered(tuple(row.values()) for row in table.to_pylist()) == visible(sink, 3)


@pytest.mark.spark
@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "none"])
def test_spark_reads_exactly_the_committed_rows(tmp_path: Path, spark: SparkSession, compression: str) -> None:
    folder = tmp_path / "history"
    sink = filled(folder, compression=compression)
    sink.commit(3, 0, "none", [])
    leave_things(folder)
    rows = spark.read.parquet(str(folder))
    assert rows.columns == SCHEMA.names
    assert [kind for _, kind in rows.dtypes] == ["bigint", "string", "double", "bigint"]
    assert ordered(map(tuple, rows.collect())) == visible(sink, 3)


@pytest.mark.spark
def test_values_of_every_type_come_back_in_both_readers(tmp_path: Path, spark: SparkSession) -> None:
    rows = {
        "b": [True, None],
        "i8": [-128, None],
        "i16": [-(2**15), None],
        "i32": [-(2**31), None],
        "i64": [2**63 - 1, None],
        "f32": [math.inf, None],
        "f64": [-0.0, None],
        "d": [Decimal("-123.45"), None],
        "s": ["é🚲\0", None],
        "x": [b"\x00\xff", None],
        "day": [date(1, 1, 1), None],
        "at": [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None],
        "local": [datetime(2013, 1, 31, 6, 5), None],  # noqa: DTZ001
        "list": [[1, None], None],
        "map": [[("a", 1)], None],
        "struct": [{"x": 1, "y": None}, None],
    }
    schema = pa.schema(
        [
            ("b", pa.bool_()),
            ("i8", pa.int8()),
            ("i16", pa.int16()),
            ("i32", pa.int32()),
            ("i64", pa.int64()),
            ("f32", pa.float32()),
            ("f64", pa.float64()),
            ("d", pa.decimal128(5, 2)),
            ("s", pa.string()),
            ("x", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("list", pa.list_(pa.int32())),
            ("map", pa.map_(pa.string(), pa.int64())),
            ("struct", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ]
    )
    table = pa.table(rows, schema=schema)
    folder = tmp_path / "history"
    sink = parquet(folder)
    sink.open(SinkContext("flow", "out", STORE, 1, schema, False))
    receipt = sink.stager().stage(str(tmp_path), "piece", 0, iter(table.to_batches()))
    sink.commit(0, 2, "d", [receipt])
    assert pq.read_table(folder).equals(table)
    read = spark.read.parquet(str(folder))
    assert dict(read.dtypes) == {
        "b": "boolean",
        "i8": "tinyint",
        "i16": "smallint",
        "i32": "int",
        "i64": "bigint",
        "f32": "float",
        "f64": "double",
        "d": "decimal(5,2)",
        "s": "string",
        "x": "binary",
        "day": "date",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "list": "array<int>",
        "map": "map<string,bigint>",
        "struct": "struct<x:bigint,y:string>",
    }
    assert read.toArrow().to_pylist() == table.to_pylist()


def test_a_step_without_rows_has_its_file_and_its_columns(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    sink = filled(folder, 0)
    sink.commit(0, 0, "none", [])
    assert [path.name for path in folder.glob("*.parquet")] == ["step-000000000000.parquet"]
    assert pq.read_table(folder).schema.names == SCHEMA.names


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    filled(folder, 2)
    said = json.loads(pq.read_metadata(folder / "step-000000000001.parquet").metadata[b"boatlift"])
    assert len(said.pop("check")) == 32
    assert said == {
        "format": 1,
        "dataflow": "flow",
        "sink": "out",
        "step": 1,
        "rows": len(rows_of(1)),
        "digest": "digest 1",
        "token": 1,
    }
    assert pq.read_metadata(folder / "step-000000000001.parquet").num_row_groups == 2


def test_verify_finds_every_flipped_byte(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    sink = filled(folder, 2)
    assert list(sink.verify()) == []
    path = folder / "step-000000000001.parquet"
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        [found] = sink.verify()
        assert found.name == str(path), place
        assert found.condition in ("SINK_DAMAGED", "SINK_OF_ANOTHER_DATAFLOW", "NEWER_FORMAT"), place
    path.write_bytes(content)
    assert list(sink.verify()) == []


@pytest.mark.parametrize("keep", [0, 3, 50, -4, -1])
def test_a_file_cut_short_is_found_where_it_is_read(tmp_path: Path, keep: int) -> None:
    folder = tmp_path / "history"
    sink = filled(folder)
    for step in (1, 2):
        path = folder / f"step-{step:012d}.parquet"
        path.write_bytes(path.read_bytes()[:keep])
        damage = rf"\[SINK_DAMAGED\].*step-{step:012d}"
        with pytest.raises(DataError, match=damage):
            put(sink, folder, step)
    with pytest.raises(DataError, match=damage):
        parquet(folder).open(context(2))


def test_of_old_steps_open_reads_only_the_names(tmp_path: Path) -> None:
    """There may be hundreds of thousands. What is in them is read when they are compared or verified."""
    folder = tmp_path / "history"
    filled(folder)
    for step in (0, 1):
        (folder / f"step-{step:012d}.parquet").write_bytes(b"")
    sink = parquet(folder)
    held = sink.open(context(2))
    assert held is not None
    assert held.step == 2
    assert put(sink, folder, 3) is Outcome.APPENDED
    with pytest.raises(DataError, match=r"\[SINK_DAMAGED\].*step-000000000001"):
        put(sink, folder, 1)


def test_steps_without_an_identity_are_refused(tmp_path: Path) -> None:
    """As after a copy of the visible files: which store they belong to is unknown."""
    folder = tmp_path / "history"
    filled(folder)
    shutil.rmtree(folder / "_boatlift")
    for _ in range(2):
        with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*no identity.json"):
            parquet(folder).open(context(2))


def test_a_missing_step_is_a_gap(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    filled(folder)
    (folder / "step-000000000001.parquet").unlink()
    with pytest.raises(DataError, match=r"\[SINK_GAP\].*step-000000000001"):
        parquet(folder).open(context(2))


def test_a_step_under_another_steps_name_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    filled(folder)
    (folder / "step-000000000002.parquet").write_bytes((folder / "step-000000000001.parquet").read_bytes())
    with pytest.raises(DataError, match=r"\[SINK_DAMAGED\].*holds step 1"):
        parquet(folder).open(context(2))


@pytest.mark.parametrize("name", ["part-0.parquet", "step-1.parquet", "notes.txt", "step=1/x.parquet"])
def test_names_that_are_not_ours_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "history"
    filled(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\]"):
        parquet(folder).open(context(2))


def test_a_folder_with_files_of_others_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\]"):
        parquet(tmp_path).open(context())
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_other_columns_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    filled(folder)
    schema = pa.schema([("k", pa.int32()), *list(SCHEMA)[1:]])
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*int32"):
        parquet(folder).open(SinkContext("flow", "out", STORE, 2, schema, True))


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 1}'])
def test_an_identity_that_cannot_be_read_is_damage(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "history"
    filled(folder)
    (folder / "_boatlift" / "identity.json").write_text(content)
    with pytest.raises(DataError, match=r"\[SINK_DAMAGED\]"):
        parquet(folder).open(context(2))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    filled(folder)
    path = folder / "_boatlift" / "identity.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(DataError, match=r"\[NEWER_FORMAT\]"):
        parquet(folder).open(context(2))


def test_a_late_file_of_a_fenced_owner_is_absorbed(tmp_path: Path) -> None:
    """The one race that is left: the kernel links the loser's file after the successor has looked which there are."""

    class Late(FileSystem):
        content = b""

        def link(self, source: Path, target: Path) -> None:
            self.content = source.read_bytes()

    folder = tmp_path / "history"
    filled(folder, 1)
    late = Late()
    loser, successor = ParquetSink(folder, None, "zstd", late), parquet(folder)
    loser.open(context())
    put(loser, folder, 1)
    successor.open(context(2))
    (folder / "step-000000000001.parquet").write_bytes(late.content)
    assert put(successor, folder, 1) is Outcome.DROPPED
    assert put(successor, folder, 2) is Outcome.APPENDED
    assert ordered(tuple(row.values()) for row in pq.read_table(folder).to_pylist()) == visible(successor, 3)


def test_an_owner_that_opens_late_fences_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    newer = parquet(folder)
    newer.open(context(7))
    with pytest.raises(FencedError, match=r"\[FENCED\] owner 7"):
        parquet(folder).open(context(3))
    assert put(newer, folder, 0) is Outcome.APPENDED
    assert [path.name for path in (folder / "_boatlift").glob("owner-*")] == ["owner-000000000007"]


def test_what_fenced_owners_left_is_cleared_away(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    filled(folder)
    leave_things(folder)
    parquet(folder).open(context(2))
    names = sorted(path.name for path in (folder / "_boatlift").rglob("*"))
    assert names == ["identity.json", "owner-000000000002"]


@pytest.mark.parametrize("failing", [1, 2])
def test_after_a_failed_sync_the_sink_writes_no_more_until_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    folder = tmp_path / "history"
    sink = filled(folder, 1)
    calls = 0

    def failing_fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_fsync)
        with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\]"):
            put(sink, folder, 1)
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\].*failed before"):
        put(sink, folder, 1)
    newest = sink.open(context())
    assert newest is not None
    assert newest.step == failing - 1  # what the name says is true: the bytes were synced before
    put(sink, folder, 1)
    put(sink, folder, 2)
    assert ordered(tuple(row.values()) for row in pq.read_table(folder).to_pylist()) == visible(sink, 3)


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"key": "k"}, {"key": []}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\]"):
        parquet("x", **options)


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        (pa.field("n", pa.null()), "TYPE_REFUSED"),
        (pa.field("n", pa.duration("us")), "TYPE_REFUSED"),
        (pa.field("n", pa.list_(pa.month_day_nano_interval())), "TYPE_REFUSED"),
        (pa.field("K", pa.int64()), "SCHEMA_MISMATCH"),
    ],
)
def test_columns_that_would_not_come_back_are_refused(tmp_path: Path, column: pa.Field, condition: str) -> None:
    with pytest.raises(InvalidError, match=rf"\[{condition}\]"):
        parquet(tmp_path / "h").open(
            SinkContext("flow", "out", STORE, 1, pa.schema([("k", pa.int64()), column]), False)
        )


@pytest.mark.parametrize("name", ["nope", "_weight"])
def test_a_key_that_is_no_column_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidError, match=rf"\[SCHEMA_MISMATCH\].*{name}"):
        parquet(tmp_path / "h", key=[name]).open(context())


def test_a_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("")
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\]"):
        parquet(tmp_path / "h").open(context())
