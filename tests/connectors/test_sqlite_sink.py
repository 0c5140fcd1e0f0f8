"""The SQLite sink beyond the laws of every sink: keys, values, other people's tables, locks, damage."""

from __future__ import annotations

import itertools
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boatlift.connectors import sqlite
from boatlift.connectors.sqlite import table as sqlite_table
from boatlift.connectors.sqlite.sink import SqliteSink
from boatlift.dataflow.contracts import Outcome, SinkContext
from boatlift.errors import DataError, DivergedError, Finding, InvalidError, UnavailableError
from connectors.conformance import SCHEMA, STORE, context, put, visible
from connectors.interrupted import Child
from connectors.sink_cases import SqliteCase
from connectors.sink_crash_laws import commit_traced
from support.crash.power_loss import Recorder


def query(path: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


class Table:
    """A sink over a schema, handed steps as lists of tuples."""

    def __init__(self, folder: Path, schema: pa.Schema, key: Sequence[str], **options: Any) -> None:
        self.path = folder / "out.db"
        self._folder = folder
        self._schema = schema
        self.step = -1
        self.sink = sqlite(self.path, table="t", key=key, **options)
        self.sink.open(SinkContext("flow", "out", STORE, 1, schema, "_weight" in schema.names))

    def put(self, *rows: tuple[Any, ...]) -> None:
        self.step += 1
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema)
        batch = pa.record_batch(
            [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)], schema=self._schema
        )
        name = f"piece {self.step}"
        receipt = self.sink.stager().stage(str(self._folder), name, 0, iter([batch]))
        self.sink.commit(self.step, len(rows), f"d{self.step}", [receipt])

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(query(self.path, "SELECT * FROM t"), key=repr)


TWO_KEYS = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64()), ("_weight", pa.int64())])


def test_null_in_a_key_is_one_key(tmp_path: Path) -> None:
    table = Table(tmp_path, TWO_KEYS, ["a", "b"])
    table.put((None, None, 1, 1), ("x", None, 2, 1), (None, 7, 3, 1), ("", 0, 4, 1), ("x", 7, 5, 1))
    table.put((None, None, 10, 1), ("x", None, 20, 1), (None, 7, 30, 1), ("", 0, 40, 1), ("x", 7, 50, 1))
    assert table.rows() == sorted(
        [(None, None, 10), ("x", None, 20), (None, 7, 30), ("", 0, 40), ("x", 7, 50)], key=repr
    )
    table.put((None, None, 0, -1), (None, 7, 0, -1), ("x", 7, 0, -1))
    assert table.rows() == sorted([("x", None, 20), ("", 0, 40)], key=repr)


def test_a_steps_deletes_come_before_its_upserts(tmp_path: Path) -> None:
    table = Table(tmp_path, TWO_KEYS, ["a", "b"])
    table.put(("x", 1, 1, 1), ("y", 1, 1, 1))
    table.put(("x", 1, 2, 1), ("x", 1, 1, -1), ("y", 1, 1, -1), ("z", 1, 0, -1))
    assert table.rows() == [("x", 1, 2)]


def test_rows_without_weight_are_upserts(tmp_path: Path) -> None:
    table = Table(tmp_path, pa.schema([("k", pa.int64()), ("v", pa.int64())]), ["k"])
    table.put((1, 1), (2, 1))
    table.put((2, 2), (3, 2))
    assert table.rows() == [(1, 1), (2, 2), (3, 2)]


def test_a_table_may_be_all_key(tmp_path: Path) -> None:
    table = Table(tmp_path, pa.schema([("k", pa.int64()), ("_weight", pa.int64())]), ["k"])
    table.put((1, 1), (None, 1))
    table.put((1, 1), (None, 1), (2, 1))
    assert table.rows() == [(1,), (2,), (None,)]


@pytest.mark.parametrize("twice", [("x", 1), ("x", None), (None, None)])
def test_two_rows_of_one_key_in_a_step_are_refused(tmp_path: Path, twice: tuple[Any, ...]) -> None:
    table = Table(tmp_path, TWO_KEYS, ["a", "b"])
    with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\]"):
        table.put((*twice, 1, 1), ("y", 1, 1, 1), (*twice, 2, 1))
    assert table.rows() == []


@pytest.mark.parametrize("key", [("x", 1), ("x", None), (None, None)])
def test_a_second_row_of_a_unique_key_is_refused_and_nothing_of_its_step_is_there(
    tmp_path: Path, key: tuple[Any, ...]
) -> None:
    table = Table(tmp_path, TWO_KEYS, ["a", "b"], unique=True)
    table.put((*key, 1, 1), ("y", 1, 1, 1))
    table.put((*key, 1, -1), (*key, 2, 1), ("y", 1, 1, -1), (None, 3, 3, 1))
    held = [(*key, 2), (None, 3, 3)]
    assert table.rows() == sorted(held, key=repr)
    steps = query(table.path, "SELECT step, rows, digest FROM _boatlift_ledger")
    for _ in range(2):
        with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\] a step has a second row for key") as caught:
            table.put(("a", 1, 1, 1), (None, 3, 3, -1), (*key, 3, 1), ("z", 1, 1, 1))
        assert repr(key) in str(caught.value)
        table.step -= 1
        assert table.rows() == sorted(held, key=repr)
        assert query(table.path, "SELECT step, rows, digest FROM _boatlift_ledger") == steps
    table.put((*key, 2, -1), (*key, 3, 1))
    assert table.rows() == sorted([(*key, 3), (None, 3, 3)], key=repr)


def test_appended_rows_replace_nothing_if_keys_are_unique(tmp_path: Path) -> None:
    table = Table(tmp_path, pa.schema([("k", pa.float64()), ("v", pa.int64())]), ["k"], unique=True)
    table.put((0.0, 1), (2.0, 2))
    with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\] a step has a second row for key \(-?0.0,\)"):
        table.put((1.0, 1), (-0.0, 2))
    assert table.rows() == [(0.0, 1), (2.0, 2)]


def test_lookups_by_key_use_the_index_also_for_null(tmp_path: Path) -> None:
    table = Table(tmp_path, TWO_KEYS, ["a", "b"])
    table.put(("x", 1, 1, 1))
    for condition in ("a IS ? AND b IS ?", "a = ? AND b = ?"):
        plan = query(table.path, f"EXPLAIN QUERY PLAN SELECT v FROM t WHERE {condition}", None, 1)
        assert "USING INDEX" in plan[0][3]
        assert "(a=? AND b=?)" in plan[0][3]


def test_names_are_quoted(tmp_path: Path) -> None:
    schema = pa.schema([('order by "x', pa.int64()), ("select", pa.string()), ("_weight", pa.int64())])
    sink = sqlite(tmp_path / "out.db", table='ta"ble; --', key=['order by "x'])
    sink.open(SinkContext("flow'", 'o"ut', STORE, 1, schema, True))
    batch = pa.record_batch([pa.array([1]), pa.array(["x"]), pa.array([1])], schema=schema)
    sink.commit(0, 1, "d", [sink.stager().stage(str(tmp_path), "p", 0, iter([batch]))])
    assert query(tmp_path / "out.db", 'SELECT * FROM "ta""ble; --"') == [(1, "x")]


@pytest.mark.parametrize(
    ("kind", "values", "kept"),
    [
        (pa.bool_(), [True, False, None], [1, 0, None]),
        (pa.int8(), [-128, 127], [-128, 127]),
        (pa.int64(), [-(2**63), 2**63 - 1, None], [-(2**63), 2**63 - 1, None]),
        (pa.uint32(), [2**32 - 1], [2**32 - 1]),
        (pa.float32(), [0.1, None], [0.10000000149011612, None]),
        (pa.float64(), [0.1, -0.0, 3.0, 5e-324, math.inf, -math.inf], [0.1, 0.0, 3.0, 5e-324, math.inf, -math.inf]),
        (
            pa.decimal128(20, 10),
            [Decimal("1.5"), Decimal("0E-10"), Decimal("-1E-9"), None],
            ["1.5000000000", "0.0000000000", "-0.0000000010", None],
        ),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1)], ["9" * 38]),
        (pa.string(), ["", "é🚲", "a\0b", "1", "1e5", None], ["", "é🚲", "a\0b", "1", "1e5", None]),
        (pa.large_string(), ["x"], ["x"]),
        (pa.binary(), [b"", b"\x00\xff", None], [b"", b"\x00\xff", None]),
        (
            pa.date32(),
            [date(1, 1, 1), date(2013, 1, 31), date(9999, 12, 31), None],
            ["0001-01-01", "2013-01-31", "9999-12-31", None],
        ),
        (
            pa.timestamp("us", "UTC"),
            [datetime(2013, 1, 31, 6, 5, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), None],
            ["2013-01-31T06:05:00.000000Z", "0001-01-01T00:00:00.000000Z", None],
        ),
        (
            pa.timestamp("us", "Europe/Berlin"),
            [datetime(2013, 1, 31, 6, 5, tzinfo=UTC)],
            ["2013-01-31T06:05:00.000000Z"],
        ),
        (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999)], ["1969-12-31T23:59:59.999999"]),  # noqa: DTZ001
        (
            pa.timestamp("us", "UTC"),
            [1_700_000_000_000_000_000, -100_000_000_000_000_000, None, 253_402_300_800_000_000],
            ["+55840-11-08T22:13:20.000000Z", "-1199-02-15T14:13:20.000000Z", None, "+10000-01-01T00:00:00.000000Z"],
        ),
        (
            pa.date32(),
            [19_675_925, -1_157_408, 0, 2**31 - 1, -719_163],
            ["+55840-11-08", "-1199-02-15", "1970-01-01", "+5881580-07-11", "0000-12-31"],
        ),
        (pa.time64("us"), [time(6, 5, 0, 1)], ["06:05:00.000001"]),
    ],
)
def test_what_values_are_kept_as(tmp_path: Path, kind: pa.DataType, values: list[Any], kept: list[Any]) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", kind), ("_weight", pa.int64())])
    table = Table(tmp_path, schema, ["k"])
    table.put(*((number, value, 1) for number, value in enumerate(values)))
    read = [row[1] for row in query(table.path, "SELECT * FROM t ORDER BY k")]
    assert read == kept
    assert [type(value) for value in read] == [type(value) for value in kept]
    table.put(*((number, value, 1) for number, value in enumerate(values)))
    assert len(table.rows()) == len(values)
    (tmp_path / "keyed").mkdir()
    keyed = Table(tmp_path / "keyed", pa.schema([("k", kind), ("_weight", pa.int64())]), ["k"])
    for _ in range(2):
        keyed.put(*((value, 1) for value in values))
    assert [row[0] for row in keyed.rows()] == sorted(kept, key=lambda value: repr((value,)))


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.null(), pa.duration("us"), pa.uint64()]
)
def test_types_that_it_cannot_hold_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    with pytest.raises(InvalidError, match=r"\[TYPE_REFUSED\].*v"):
        sqlite(tmp_path / "out.db", table="t", key=["k"]).open(SinkContext("flow", "out", STORE, 1, schema, False))
    assert not (tmp_path / "out.db").exists()


def test_nan_as_a_key_is_one_key_when_it_is_text(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.float64()), ("v", pa.int64()), ("_weight", pa.int64())])
    table = Table(tmp_path, schema, ["k"], nan="text")
    table.put((math.nan, 1, 1), (None, 1, 1), (0.5, 1, 1))
    table.put((math.nan, 2, 1), (None, 2, 1))
    assert table.rows() == sorted([("NaN", 2), (None, 2), (0.5, 1)], key=repr)


@pytest.mark.parametrize(
    ("columns", "key", "condition"),
    [
        (["k", "K"], ["k"], "SCHEMA_MISMATCH"),
        (["k", "v"], ["nope"], "SCHEMA_MISMATCH"),
        (["k", "v\0"], ["k"], "SCHEMA_MISMATCH"),
    ],
)
def test_columns_that_it_cannot_have_are_refused(
    tmp_path: Path, columns: list[str], key: list[str], condition: str
) -> None:
    schema = pa.schema([(name, pa.int64()) for name in columns])
    with pytest.raises(InvalidError, match=rf"\[{condition}\]"):
        sqlite(tmp_path / "out.db", table="t", key=key).open(SinkContext("flow", "out", STORE, 1, schema, False))


@pytest.mark.parametrize(
    "options",
    [
        {"table": "t", "key": "k"},
        {"table": "t", "key": []},
        {"table": "t", "key": ["k", "k"]},
        {"table": "", "key": ["k"]},
        {"table": "sqlite_x", "key": ["k"]},
        {"table": "_boatlift_ledger", "key": ["k"]},
        {"table": "t", "key": ["k"], "nan": "null"},
        {"table": "t", "key": ["k"], "lock_timeout": -1},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\]"):
        sqlite("x.db", **options)


def test_several_sinks_share_a_database_each_with_its_own_steps(tmp_path: Path) -> None:
    sinks = [sqlite(tmp_path / "out.db", table=name, key=["k"]) for name in ("one", "two")]
    for sink, name in zip(sinks, ("a", "b"), strict=True):
        assert sink.open(context(sink=name)) is None
    for step in range(2):
        put(sinks[0], tmp_path, step)
    put(sinks[1], tmp_path, 0)
    for sink, name, newest in zip(sinks, ("a", "b"), (1, 0), strict=True):
        held = sink.open(context(2, sink=name))
        assert held is not None
        assert held.step == newest
    query(tmp_path / "out.db", "CREATE TABLE mine (x)")
    assert put(sinks[1], tmp_path, 1) is Outcome.APPENDED


def test_other_columns_or_another_key_are_refused(tmp_path: Path) -> None:
    sink = sqlite(tmp_path / "out.db", table="t", key=["k"])
    sink.open(context())
    sink.close()
    fewer = pa.schema([SCHEMA.field("k"), SCHEMA.field("name"), SCHEMA.field("_weight")])
    for key, schema in ((["k"], fewer), (["name"], SCHEMA), (["k", "name"], SCHEMA)):
        with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\]"):
            sqlite(tmp_path / "out.db", table="t", key=key).open(SinkContext("flow", "out", STORE, 2, schema, True))


def test_a_sink_that_wrote_to_another_table_is_refused(tmp_path: Path) -> None:
    sqlite(tmp_path / "out.db", table="old", key=["k"]).open(context())
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*old"):
        sqlite(tmp_path / "out.db", table="new", key=["k"]).open(context(2))


def opened(tmp_path: Path, steps: int = 2) -> SqliteSink:
    sink = sqlite(tmp_path / "out.db", table="results", key=["k"], lock_timeout=0.1)
    sink.open(context())
    for step in range(steps):
        put(sink, tmp_path / "out", step)
    return sink


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("DROP TABLE results", "SINK_DAMAGED"),
        ("DROP INDEX _boatlift_key_of_results", "SINK_OF_ANOTHER_DATAFLOW"),
        ("DELETE FROM _boatlift_sinks", "SINK_OF_ANOTHER_DATAFLOW"),
        ("UPDATE _boatlift_sinks SET format = 2", "NEWER_FORMAT"),
    ],
)
def test_a_ledger_and_a_table_that_do_not_fit_are_refused(tmp_path: Path, sql: str, condition: str) -> None:
    opened(tmp_path).close()
    query(tmp_path / "out.db", sql)
    with pytest.raises(DataError, match=rf"\[{condition}\]"):
        opened(tmp_path)


def test_a_step_missing_in_the_ledger_is_a_gap(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    query(tmp_path / "out.db", "DELETE FROM _boatlift_ledger WHERE step = 0")
    with pytest.raises(DataError, match=r"\[SINK_GAP\]"):
        put(sink, tmp_path / "out", 0)


def test_the_ledger_keeps_so_many_steps_and_older_ones_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_table, "KEPT_STEPS", 3)
    sink = opened(tmp_path, 6)
    assert query(tmp_path / "out.db", "SELECT step FROM _boatlift_ledger ORDER BY step") == [(3,), (4,), (5,)]
    assert list(sink.verify()) == []
    for step in (1, 2):
        assert put(sink, tmp_path / "out", step) is Outcome.DROPPED
        assert f"step {step} is too old" in caplog.text
    with pytest.raises(DivergedError):
        sink.commit(3, 1, "another digest", [])
    query(tmp_path / "out.db", "DELETE FROM _boatlift_ledger WHERE step = 3")
    assert [finding.condition for finding in sink.verify()] == ["SINK_GAP"]


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, b"SQLite format 3\0" + bytes(4000)])
def test_a_file_that_is_no_database_is_damage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "out.db").write_bytes(content)
    with pytest.raises(DataError, match=r"\[SINK_DAMAGED\]"):
        opened(tmp_path)
    assert (tmp_path / "out.db").read_bytes() == content


def test_a_place_that_cannot_be_used_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "out.db").mkdir()
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\]"):
        opened(tmp_path)


def test_verify_says_so_of_a_place_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "out.db").mkdir()
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\]"):
        list(sqlite(tmp_path / "out.db", table="results", key=["k"]).verify())


def test_verify_looks_again_after_a_write_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes looks damaged to a reader that expects no writer."""
    opened(tmp_path).close()
    ways, owners = [], []

    def findings(path: Path, how: str, table: str) -> Iterator[Finding]:
        ways.append(how)
        if how == "immutable=1":
            owners.append(opened(tmp_path, 3))
            yield Finding(str(path), "SINK_DAMAGED", "half of one state and half of another")

    monkeypatch.setattr(sqlite_table, "_findings", findings)
    assert list(sqlite(tmp_path / "out.db", table="results", key=["k"]).verify()) == []
    assert ways == ["immutable=1", "mode=ro"]
    owners[0].close()


def test_a_full_disk_leaves_the_steps_before_and_the_sink_goes_on_after(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    (pages,) = sink._database.connection.execute("PRAGMA page_count").fetchone()
    sink._database.connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for step in range(2, 200):
            put(sink, tmp_path / "out", step)

    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\].*full"):
        fill()
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\].*failed before"):
        put(sink, tmp_path / "out", 2)
    held = sink.open(context())
    assert held is not None
    assert sorted(query(tmp_path / "out.db", "SELECT k, name, value FROM results"), key=repr) == visible(
        sink, held.step + 1
    )
    put(sink, tmp_path / "out", held.step + 1)


def test_each_commit_is_synced(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    assert sink._database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert sink._database.connection.execute("PRAGMA synchronous").fetchone() == (2,)


def syncs_of_open(tmp_path: Path) -> list[str]:
    """Open a sink two new folders down; return what was made and synced on the disk, in order."""
    files = Recorder()
    sink = SqliteSink(tmp_path / "a" / "b" / "out.db", "t", ["k"], False, False, 0.1, files)
    sink.open(context())
    sink.close()
    return [f"{act.verb} {os.path.relpath(act.path, tmp_path)}" for act in files.acts]


def test_the_names_above_a_new_database_are_synced_each_before_the_next(tmp_path: Path) -> None:
    assert syncs_of_open(tmp_path) == [
        *("sync_folder ..", "make_folder a", "sync_folder .", "make_folder a/b", "sync_folder a"),
        "sync_folder a/b",  # for the name of the database
    ]


def test_a_name_that_exists_may_never_have_been_synced_by_its_writer(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert syncs_of_open(tmp_path) == ["sync_folder a", "sync_folder a/b"]
    assert syncs_of_open(tmp_path) == ["sync_folder a", "sync_folder a/b"]


@pytest.mark.crash
def test_an_owner_stopped_inside_its_transaction_blocks_and_is_named_and_then_fenced(tmp_path: Path) -> None:
    folder = tmp_path / "place"
    first = SqliteCase.make(folder)
    first.open(context(1))
    put(first, folder, 0)
    first.close()
    point = _first_line_with_the_lock(tmp_path)
    child = Child(commit_traced, SqliteCase, folder, 2, 1, point=point, number=signal.SIGSTOP)
    assert child.stopped()
    successor = SqliteCase.make(folder)
    with pytest.raises(UnavailableError, match=r"\[SINK_LOCKED\].*0\.1 s \(`fuser -v .*out.db`.*: end that process"):
        successor.open(context(3))
    child.go_on()
    assert child.answer()[0] == "APPENDED"
    held = successor.open(context(3))
    assert held is not None
    assert held.step == 1
    assert put(successor, folder, 1) is Outcome.DROPPED
    assert put(successor, folder, 2) is Outcome.APPENDED
    assert SqliteCase.read(folder) == visible(successor, 3)
    successor.close()


def _first_line_with_the_lock(tmp_path: Path) -> int:
    """Finds the first point of a commit at which others cannot write."""
    place = tmp_path / "probed"
    for point in itertools.count():
        child = Child(commit_traced, SqliteCase, place, point + 1, 0, point=point, number=signal.SIGSTOP)
        assert child.stopped(), "a commit takes no lock"
        connection = sqlite3.connect(place / "out.db", timeout=0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return point
        finally:
            connection.close()
            child.kill()
            child.process.join()
    raise AssertionError


def test_it_waits_for_a_lock_that_is_given_back(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    patient = sqlite(tmp_path / "out.db", table="results", key=["k"], lock_timeout=60)
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE'); "
        "print('locked', flush=True); sys.stdin.read(); c.execute('ROLLBACK')"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "out.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(UnavailableError, match=r"\[SINK_LOCKED\]"):
        put(sink, tmp_path / "out", 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(patient.open, context(2))
        holder.stdin.close()  # the holder goes on and gives the lock back
        assert waiting.result() is not None
    assert put(patient, tmp_path / "out", 2) is Outcome.APPENDED
    assert holder.wait() == 0
