"""Rows as the console shows them: exact text, in pages, of one step; rows of others are refused."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boatlift.api.served import ROW_READERS
from boatlift.connectors import parquet, sqlite
from boatlift.connectors.kit.shown_values import MOST_CHARACTERS, MOST_COLUMNS
from boatlift.connectors.parquet import shown as parquet_shown
from boatlift.connectors.sqlite import shown as sqlite_shown
from boatlift.connectors.sqlite.table import undisturbed
from boatlift.dataflow.contracts import Sink, SinkContext, SinkPlace, place_in
from boatlift.errors import BoatliftError, DataError, UnavailableError
from connectors.conformance import STORE

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), ("v", pa.float64()), ("raw", pa.binary())])


class Written:
    """A sink that holds the steps it was handed, as a run leaves it."""

    def __init__(self, sink: Sink, folder: Path, schema: pa.Schema = SCHEMA) -> None:
        self.sink, self._folder, self._schema, self._step = sink, folder, schema, -1
        sink.open(SinkContext("flow", "out", STORE, 1, schema, changes=False))

    def put(self, *rows: tuple[Any, ...]) -> None:
        self._step += 1
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)]
        batch = pa.record_batch(arrays, schema=self._schema)
        staged = self.sink.stager().stage(str(self._folder), f"piece-{self._step}", 0, iter([batch]))
        self.sink.commit(self._step, len(rows), f"d{self._step}", [staged])

    def place(self, **other: str) -> SinkPlace:
        whose = {"dataflow": "flow", "sink": "out", "store": STORE, **other}
        return SinkPlace(**whose, place=place_in(self.sink.describe()))  # type: ignore[arg-type]

    def shown(self, begin: int = 0, limit: int = 200, **other: str) -> Any:
        place = self.place(**other)
        return ROW_READERS[place.place["kind"]](place, begin, limit)


def table(folder: Path) -> Written:
    return Written(sqlite(folder / "out.db", table="t", key=["k"]), folder)


def folder_of(folder: Path) -> Written:
    return Written(parquet(folder / "out"), folder)


def test_a_table_has_the_newest_row_of_each_key_in_its_order(tmp_path: Path) -> None:
    out = table(tmp_path)
    assert (out.shown().step, out.shown().rows, out.shown().total) == (-1, [], 0)
    out.put((2, "two", 2.5, b"\x00\xff"), (10, None, None, None), (None, "none", -0.0, b""))
    out.put((2, "two again", float("inf"), b"x" * 500))
    found = out.shown()
    assert (found.step, found.order, found.total, found.more) == (1, "by k", 3, False)
    assert found.columns == ["k", "name", "v", "raw"]
    assert found.rows == [
        [None, "none", "0.0", "0x"],
        ["2", "two again", "inf", f"0x{'78' * 400}…"],
        ["10", None, None, None],
    ]


@pytest.mark.parametrize("make", [table, folder_of])
def test_pages_follow_each_other_without_a_gap(make: Any, tmp_path: Path) -> None:
    out = make(tmp_path)
    for step in range(7):
        out.put(*((10 * step + n, "x" * step, 0.5, None) for n in range(step)))
    whole = out.shown()
    assert (len(whole.rows), whole.total, whole.more) == (21, 21, False)
    pages, begin = [], 0
    while True:
        page = out.shown(begin, 4)
        assert (page.begin, page.total) == (begin, 21)
        pages += page.rows
        begin += len(page.rows)
        if not page.more:
            break
    assert pages == whole.rows
    assert out.shown(21, 4).rows == out.shown(500, 4).rows == []


def test_a_folder_has_the_newest_step_first_and_each_row_its_step(tmp_path: Path) -> None:
    out = folder_of(tmp_path)
    assert (out.shown().step, out.shown().rows, out.shown().total) == (-1, [], 0)
    out.put((1, "one", 0.5, None), (2, None, float("nan"), b"\x01"))
    out.put()
    out.put((3, "three", 1.0, None))
    found = out.shown()
    assert (found.step, found.columns, found.total) == (2, ["step", "k", "name", "v", "raw"], 3)
    assert found.rows == [
        ["2", "3", "three", "1.0", None],
        ["0", "1", "one", "0.5", None],
        ["0", "2", None, "nan", "0x01"],
    ]


def test_of_many_files_rows_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_shown, "MOST_FILES", 3)
    out = folder_of(tmp_path)
    for step in range(5):
        out.put((step, "x", 0.5, None))
    assert [(out.shown(n, 2).total, out.shown(n, 2).more) for n in (0, 2, 4)] == [
        (None, True),
        (None, True),
        (None, False),
    ]


def test_long_texts_and_many_columns_are_cut(tmp_path: Path) -> None:
    schema = pa.schema([(f"c{n}", pa.string()) for n in range(MOST_COLUMNS + 20)])
    out = Written(sqlite(tmp_path / "out.db", table="t", key=["c0"]), tmp_path, schema)
    out.put(tuple("<b>" * 5_000 for _ in schema))
    found = out.shown()
    assert (len(found.columns), found.left_out, len(found.rows[0])) == (MOST_COLUMNS, 20, MOST_COLUMNS)
    assert len(found.rows[0][0]) == MOST_CHARACTERS + 1


@pytest.mark.parametrize("make", [table, folder_of])
@pytest.mark.parametrize("other", [{"store": "6" * 32}, {"sink": "another"}, {"dataflow": "another"}])
def test_rows_of_others_are_refused(make: Any, other: dict[str, str], tmp_path: Path) -> None:
    out = make(tmp_path)
    out.put((1, "one", 0.5, None))
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\]"):
        out.shown(**other)


@pytest.mark.parametrize("make", [table, folder_of])
def test_a_place_that_is_not_on_this_computer_is_named(make: Any, tmp_path: Path) -> None:
    out = make(tmp_path)
    out.sink.close()
    (tmp_path / "out.db" if make is table else tmp_path / "out").rename(tmp_path / "moved")
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] there is no .*out.* on this computer"):
        out.shown()


@pytest.mark.parametrize("make", [table, folder_of])
def test_a_damaged_place_is_told(make: Any, tmp_path: Path) -> None:
    out = make(tmp_path)
    out.put((1, "one", 0.5, None))
    out.sink.close()
    damaged = tmp_path / "out.db" if make is table else tmp_path / "out" / "step-000000000000.parquet"
    damaged.write_bytes(b"nothing of the kind, and long enough to look at " * 10)
    with pytest.raises(BoatliftError, match=r"\[SINK_DAMAGED\]"):
        out.shown()


def test_a_bucket_is_not_read() -> None:
    described = place_in(parquet("s3://bucket/out").describe())
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] the console reads no bucket: read s3://bucket/out"):
        ROW_READERS["parquet"](SinkPlace("flow", "out", STORE, described), 0, 200)


@pytest.mark.parametrize(
    ("place", "lacks"),
    [
        ({"kind": "parquet"}, "path"),
        ({"kind": "parquet", "path": 7}, "path"),
        ({"kind": "sqlite", "table": "t", "key": ["k"]}, "path"),
        ({"kind": "sqlite", "path": "out.db", "key": ["k"]}, "table"),
        ({"kind": "sqlite", "path": "out.db", "table": "t"}, "key"),
        ({"kind": "sqlite", "path": "out.db", "table": "t", "key": "k"}, "key"),
        ({"kind": "sqlite", "path": "out.db", "table": "t", "key": [1]}, "key"),
    ],
)
def test_a_sink_of_a_program_that_describes_itself_otherwise_is_refused_in_words(
    place: dict[str, Any], lacks: str
) -> None:
    with pytest.raises(UnavailableError, match=rf"\[SINK_FAILED\] sink out .*{place['kind']}, without the {lacks} of"):
        ROW_READERS[place["kind"]](SinkPlace("flow", "out", STORE, place), 0, 200)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("make", [table, folder_of])
def test_a_place_that_this_user_may_not_read_is_told(make: Any, tmp_path: Path) -> None:
    out = make(tmp_path)
    out.put((1, "one", 0.5, None))
    tmp_path.chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\].*Permission denied"):
            out.shown()
    finally:
        os.seteuid(0)


def test_a_large_table_is_not_counted_and_its_pages_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_shown, "MOST_COUNTED", 3)
    out = table(tmp_path)
    out.put(*((n, "x", 0.5, None) for n in range(3)))
    assert (out.shown().total, out.shown(0, 2).more, out.shown(2, 2).more) == (3, True, False)
    out.put((3, "x", 0.5, None))
    assert (out.shown().total, out.shown(0, 2).more, out.shown(2, 2).more) == (None, True, False)


def test_a_file_of_a_step_is_counted_once_and_one_in_its_place_again(tmp_path: Path) -> None:
    out = folder_of(tmp_path)
    for step in range(3):
        out.put((step, "x", 0.5, None))
    assert out.shown().total == 3
    before = parquet_shown._counted.cache_info().misses
    assert out.shown().total == 3
    assert parquet_shown._counted.cache_info().misses == before
    files = [tmp_path / "out" / f"step-{n:012}.parquet" for n in (1, 2)]
    pq.write_table(pa.concat_tables([pq.read_table(files[1])] * 4), files[0])
    assert out.shown().total == 6


def test_a_table_that_is_written_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    out = table(tmp_path)
    out.put((1, "one", 0.5, None))
    out.sink.close()
    found: list[list[Any]] = []

    def read(database: sqlite3.Connection) -> list[Any]:
        found.append(database.execute("SELECT k FROM t").fetchall())
        if len(found) == 1:
            with closing(sqlite3.connect(tmp_path / "out.db")) as other:
                other.execute("INSERT INTO t (k) VALUES (2)")
                other.commit()
        return found[-1]

    assert undisturbed(tmp_path / "out.db", read) == [(1,), (2,)]
    assert not (tmp_path / "out.db-wal").exists()


def test_a_look_writes_nothing(tmp_path: Path) -> None:
    for make in (table, folder_of):
        out = make(tmp_path)
        out.put((1, "one", 0.5, None))
        out.sink.close()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for kind, place in (
        ("sqlite", {"path": f"{tmp_path}/out.db", "table": "t", "key": ["k"]}),
        ("parquet", {"path": f"{tmp_path}/out"}),
    ):
        assert ROW_READERS[kind](SinkPlace("flow", "out", STORE, {"kind": kind, **place}), 0, 10).rows
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
