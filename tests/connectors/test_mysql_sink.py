"""The sink of MariaDB beyond what holds for each database: values, NULL in keys, servers that do not fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boatlift.connectors import mysql
from boatlift.connectors.databases.mysql import dialect
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import BoatliftError, DataError, FencedError, InvalidError
from boatlift.testing.mysql_server import MysqlServer
from connectors.conformance import STORE, context, put, visible
from connectors.database_cases import Table
from connectors.sink_cases import MysqlAppendCase, MysqlCase
from support.mysql import query, url

pytestmark = pytest.mark.usefixtures("mysql_server")

BIN = "COLLATE utf8mb4_nopad_bin"
FAR = 10**38 - 1

VALUES: dict[str, tuple[pa.Array, str, list[str | None]]] = {
    "boolean": (pa.array([True, False, None]), "tinyint(1)", ["1", "0", None]),
    "byte": (pa.array([-128, 127], pa.int8()), "tinyint", ["-128", "127"]),
    "short": (pa.array([-(2**15), None, 2**15 - 1], pa.int16()), "smallint", ["-32768", None, "32767"]),
    "integer": (pa.array([-(2**31), 2**31 - 1], pa.int32()), "int", ["-2147483648", "2147483647"]),
    "long": (pa.array([-(2**63), 2**63 - 1, None]), "bigint", [str(-(2**63)), str(2**63 - 1), None]),
    "unsigned": (pa.array([2**32 - 1], pa.uint32()), "bigint", ["4294967295"]),
    "float": (pa.array([0.1, None, 16777217.0], pa.float32()), "double", ["0.10000000149011612", None, "16777216"]),
    "double": (
        pa.array([0.1, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 0.1 + 0.2, None]),
        "double",
        ["0.1", "5e-324", "1.7976931348623157e308", "-2.2250738585072014e-308", "0.30000000000000004", None],
    ),
    "decimal": (
        pa.array([Decimal("1.5"), Decimal("0E-10"), Decimal("-1E-10"), None], pa.decimal128(20, 10)),
        "decimal(20,10)",
        ["1.5000000000", "0.0000000000", "-0.0000000001", None],
    ),
    "long decimal": (pa.array([Decimal(FAR)], pa.decimal128(38, 0)), "decimal(38,0)", [str(FAR)]),
    "fraction": (pa.array([Decimal(f"0.{FAR}")], pa.decimal128(38, 38)), "decimal(38,38)", [f"0.{FAR}"]),
    "longest decimal": (pa.array([Decimal(10**65 - 1)], pa.decimal256(65, 0)), "decimal(65,0)", [str(10**65 - 1)]),
    "text": (
        pa.array(["", "é🚲", "a\tb\\N\n'\"%s`", "nul \0 in it", None, "x" * 100_000, " spaces  "]),
        f"longtext {BIN}",
        ["", "é🚲", "a\tb\\N\n'\"%s`", "nul \0 in it", None, "x" * 100_000, " spaces  "],
    ),
    "large text": (pa.array(["x", None], pa.large_string()), f"longtext {BIN}", ["x", None]),
    "binary": (pa.array([b"", b"\x00\xff'", None, b"a "]), "longblob", ["", "00FF27", None, "6120"]),
    "fixed binary": (pa.array([b"ab", None], pa.binary(2)), "longblob", ["6162", None]),
    "date": (
        pa.array([date(1, 1, 1), date(2013, 1, 31), date(9999, 12, 31), None]),
        "date",
        ["0001-01-01", "2013-01-31", "9999-12-31", None],
    ),
    "instant": (
        pa.array([datetime(2013, 3, 31, 2, 30, 0, 1, tzinfo=UTC), None], pa.timestamp("us", "Europe/Berlin")),
        "datetime(6)",
        ["2013-03-31 02:30:00.000001", None],
    ),
    "timestamp": (
        pa.array([-1, -62_135_596_800_000_000, 253_402_300_799_999_999]).cast(pa.timestamp("us")),
        "datetime(6)",
        ["1969-12-31 23:59:59.999999", "0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999"],
    ),
    "time": (pa.array([time(6, 5, 0, 1), time.max, None], pa.time64("us")), "time(6)",
             ["06:05:00.000001", "23:59:59.999999", None]),
}  # fmt: skip
IN_KEYS = {f"longtext {BIN}": f"varchar(768) {BIN}", "longblob": "varbinary(3072)"}


@pytest.mark.parametrize("key", [None, ["k"], ["v"]])
@pytest.mark.parametrize("what", VALUES)
def test_what_values_are_kept_as(tmp_path: Path, what: str, key: list[str] | None) -> None:
    column, kind, kept = VALUES[what]
    if key == ["v"]:
        column = column.filter(pa.compute.is_valid(column))
        column = column.filter(pa.array([len(str(each)) <= 768 for each in column.to_pylist()]))
        kept, kind = [each for each in kept if each is not None and len(each) <= 768], IN_KEYS.get(kind, kind)
    numbers, ones = pa.array(range(len(column))), pa.array([1] * len(column))
    schema = pa.schema([("k", pa.int64()), ("v", column.type), ("_weight", pa.int64())])
    table = Table(MysqlCase, tmp_path, schema, key)
    for _ in range(2):
        table.put_columns(numbers, column, ones)
    shown = "hex(v)" if kind.startswith(("longblob", "varbinary")) else "concat(v)"
    read = query(f"SELECT {shown} FROM t ORDER BY k" if key else f"SELECT {shown} FROM t ORDER BY k LIMIT 1000")
    expected = kept if key else [each for each in kept for _ in range(2)]
    assert [each if each is None or isinstance(each, str) else each.decode() for (each,) in read] == expected
    assert table.sink._table is not None
    assert table.sink._transactions.transaction(table.sink._table._found, "found", writes=False)["v"] == kind
    back = table.held().sort_by("k")["v"].unique()
    assert back.to_pylist() == pa.chunked_array([column]).unique().to_pylist()
    assert back.type == column.type


FAR_TIMES = {
    "dates": (pa.date32(), [-719_162, 2_932_896], [-719_163, 2_932_897, 2**31 - 1, -(2**31)]),
    "timestamps": (
        pa.timestamp("us"),
        [-62_135_596_800_000_000, 253_402_300_799_999_999],
        [-62_135_596_800_000_001, 253_402_300_800_000_000, -(2**63)],
    ),
    "instants": (pa.timestamp("us", "UTC"), [-62_135_596_800_000_000], [-62_135_596_800_000_001, 2**63 - 1]),
}


@pytest.mark.parametrize("what", FAR_TIMES)
def test_times_are_kept_as_far_as_the_server_has_them_and_refused_beyond(tmp_path: Path, what: str) -> None:
    kind, inside, outside = FAR_TIMES[what]
    number = pa.int32() if kind == pa.date32() else pa.int64()
    table = Table(MysqlCase, tmp_path, pa.schema([("k", pa.int64()), ("v", kind)]), ["k"])
    table.put_columns(pa.array(range(len(inside))), pa.array(inside, number).cast(kind))
    assert table.held().sort_by("k")["v"].cast(number).to_pylist() == inside
    for value in outside:
        with pytest.raises(DataError, match=r"\[VALUE_REFUSED\] column v holds a time outside the years"):
            table.put_columns(pa.array([9]), pa.array([value], number).cast(kind))
    assert query("SELECT count(*) FROM t") == [(len(inside),)]


@pytest.mark.parametrize(
    ("types", "row", "condition", "told"),
    [
        ({"k": pa.string(), "v": pa.int64()}, ("x" * 769, 1), "VALUE_REFUSED", "column k holds a value of 769 char"),
        ({"k": pa.string(), "v": pa.int64()}, ("x" * 768 + " ", 1), "VALUE_REFUSED", "has room for 768"),
        ({"k": pa.binary(), "v": pa.int64()}, (b"x" * 3073, 1), "VALUE_REFUSED", "3,073 bytes.*room for 3072"),
        ({"k": pa.string(), "v": pa.int64()}, (None, 1), "NULL_KEY", "column k of the key"),
        ({"k": pa.int64(), "v": pa.float64()}, (1, math.nan), "NAN_REFUSED", "column v holds nan"),
        ({"k": pa.int64(), "v": pa.float32()}, (1, -math.inf), "NAN_REFUSED", "column v holds -inf"),
        ({"k": pa.int64(), "v": pa.string()}, (1, "x" * 20_000_000), "VALUE_REFUSED", "max_allowed_packet"),
    ],
)  # fmt: skip
def test_values_that_it_cannot_hold_are_refused_and_the_sink_goes_on(
    tmp_path: Path, types: dict[str, pa.DataType], row: tuple[Any, ...], condition: str, told: str
) -> None:
    table = Table(MysqlCase, tmp_path, pa.schema(types), ["k"])
    with pytest.raises(DataError, match=rf"\[{condition}\].*{told}"):
        table.put(row)
    assert table.rows() == []
    table.put()
    assert table.step == 0


def test_a_key_of_the_greatest_length_is_kept_whole(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("c", pa.int64()), ("_weight", pa.int64())])
    table = Table(MysqlCase, tmp_path, schema, ["a", "b", "c"])
    for value in ("🚲" * 383, "🚲" * 382 + " "):
        table.put((value, value, 1, 1))
        assert (value, value, 1) in table.rows()
        table.put((value, value, 1, -1))
    assert table.rows() == []


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.null(), pa.duration("us"), pa.uint64(),
     pa.timestamp("ns"), pa.decimal256(66, 0), pa.decimal128(5, -2)],
)  # fmt: skip
def test_types_that_it_cannot_hold_are_refused(kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    with pytest.raises(InvalidError, match=r"\[TYPE_REFUSED\]"):
        mysql(url(), table="t", key=["k"]).open(SinkContext("flow", "out", STORE, 1, schema, False))
    assert query("SHOW TABLES LIKE 't'") == []


def test_a_row_without_a_table_is_gone_on_from_with_other_columns_and_another_key(tmp_path: Path) -> None:
    """CREATE TABLE commits the sink's row, and its owner dies before the table is there."""
    other = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    mysql(url(), table="wrong", key=["v"]).open(SinkContext("flow", "out", STORE, 2, other, False))
    query("DROP TABLE wrong")
    assert query("SELECT place, step FROM _boatlift_sinks") == [("`wrong`", -1)]
    with pytest.raises(FencedError, match=r"\[FENCED\]"):
        MysqlCase.sink(table="results", key=["k"]).open(context(1))
    sink = MysqlCase.sink(table="results", key=["k"])
    assert sink.open(context(3)) is None
    put(sink, tmp_path / "x", 0)
    assert sorted(query("SELECT * FROM results"), key=repr) == visible(sink, 1)


def test_a_successor_that_comes_while_a_column_is_added_fences_the_older_owner(tmp_path: Path) -> None:
    """ALTER TABLE gives the lock of the sink's row back."""
    fewer = pa.schema([("k", pa.int64()), ("_weight", pa.int64())])
    more = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("_weight", pa.int64())])
    Table(MysqlCase, tmp_path, fewer, ["k"]).put((1, 1))
    older = Table(MysqlCase, tmp_path, more, ["k"], token=2)
    written = older.sink._table
    assert written is not None
    add = written.add_columns

    def add_and_wait(session: Any) -> None:
        add(session)
        newer = Table(MysqlCase, tmp_path, more, ["k"], token=3)
        newer.put((2, 2, 1))

    written.add_columns = add_and_wait  # type: ignore[method-assign]
    with pytest.raises(FencedError, match=r"\[FENCED\] owner 3"):
        older.put((3, 3, 1))
    assert query("SELECT * FROM t") == [(1, None), (2, 2)]


@pytest.mark.parametrize("columns", [["k", "v\0"], ["k", "é" * 65], ["k", "v "], ["k", ""], ["k", "🚲"], ["k", "K"],
                                     ["k", "_boatlift_ROW"]])  # fmt: skip
def test_columns_that_it_cannot_have_are_refused(columns: list[str]) -> None:
    schema = pa.schema([(name, pa.int64()) for name in columns])
    with pytest.raises(InvalidError, match=r"\[SCHEMA_MISMATCH\]"):
        mysql(url(), table="t", key=["k"]).open(SinkContext("flow", "out", STORE, 1, schema, False))


def test_names_are_quoted(tmp_path: Path) -> None:
    schema = pa.schema([('order by "x`', pa.int64()), ("sel%s ect", pa.string()), ("_weight", pa.int64())])
    sink = mysql(url(), table='ta"b`le; --', key=['order by "x`'])
    sink.open(SinkContext("flow'\\", 'o"ut', STORE, 1, schema, True))
    batch = pa.record_batch([pa.array([1]), pa.array(["x"]), pa.array([1])], schema=schema)
    sink.commit(0, 1, "d", [sink.stager().stage(str(tmp_path), "p", 0, iter([batch]))])
    assert query('SELECT * FROM `ta"b``le; --`') == [(1, "x")]
    sink.open(SinkContext("flow'\\", 'o"ut', STORE, 2, schema, True))
    assert list(sink.verify()) == []


@pytest.mark.parametrize(
    "given",
    ["postgresql://db/shop", "mysql://db", "mysql://db/a/b", "mysql://bob:geheim@[/x", "mysql://bob:se/geheim@db/shop",
     "mysql://bob:p@geheim@db/shop", "mysql://bob:ge#heim@db/shop", "mysql://db/shop?password=geheim",
     "mysql://db:x/shop", "mysql://db/shop?ssl_verify_cert=1", "", 5],
)  # fmt: skip
def test_urls_that_make_no_sense_are_refused_without_their_secrets(given: Any) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\]") as caught:
        mysql(given, table="t")
    assert "heim" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("ALTER TABLE results ENGINE=Aria", "SINK_UNSUITABLE"),
        ("ALTER TABLE results DROP PRIMARY KEY", "SINK_DAMAGED"),
        ("ALTER TABLE results MODIFY value float", "SINK_OF_ANOTHER_DATAFLOW"),
        ("ALTER TABLE results CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "SINK_OF_ANOTHER_DATAFLOW"),
        ("ALTER TABLE results COMMENT='mine'", "SINK_DAMAGED"),
    ],
)
def test_a_table_that_was_altered_is_refused(tmp_path: Path, sql: str, condition: str) -> None:
    sink = MysqlCase.sink(table="results", key=["k"])
    sink.open(context(1))
    put(sink, tmp_path / "x", 0)
    query(sql)
    with pytest.raises(BoatliftError, match=rf"\[{condition}\]") as caught:
        sink.open(context(2))
    if "restore it (" in str(caught.value):
        query(str(caught.value).partition("restore it (")[2].rpartition(")")[0])
        sink.open(context(2))


def test_an_upsert_that_meets_another_unique_index_changes_no_row_of_another_key(tmp_path: Path) -> None:
    table = Table(
        MysqlCase, tmp_path, pa.schema([("k", pa.int64()), ("v", pa.int64()), ("_weight", pa.int64())]), ["k"]
    )
    table.put((1, 10, 1), (2, 20, 1))
    query("CREATE UNIQUE INDEX mine ON t (v)")
    for rows in ([(3, 10, 1)], [(1, 20, 1)], [(4, 40, 1), (3, 10, 1)]):
        with pytest.raises(DataError, match=r"\[VALUE_REFUSED\] a row violates a constraint"):
            table.put(*rows)
        assert table.rows() == [(1, 10), (2, 20)]
    table.put((1, 11, 1))
    assert table.rows() == [(1, 11), (2, 20)]


def test_rows_of_an_appended_table_have_numbers_that_readers_do_not_see(tmp_path: Path) -> None:
    sink = MysqlAppendCase.sink(table="results")
    sink.open(context())
    for step in range(2):
        put(sink, tmp_path / "x", step)
    assert sorted(query("SELECT * FROM results"), key=repr) == visible(sink, 2)
    assert query("SELECT min(_boatlift_row), max(_boatlift_row) FROM results") == [(1, 82)]
    assert query("SELECT transaction FROM _boatlift_steps ORDER BY step") == [(1,), (42,)]


@pytest.fixture
def setting(mysql_server: MysqlServer, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    name, wrong, right = request.param
    query(f"SET GLOBAL {name} = {wrong}")
    yield name, right
    query(f"SET GLOBAL {name} = {right}")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (("innodb_flush_log_at_trx_commit", "2", "1"), "may forget transactions.*SET GLOBAL innodb_flush_log_at_trx_c"),
        (("read_only", "1", "0"), "takes no writes .*give the primary's address"),
    ],
    indirect=["setting"],
)
def test_a_server_that_does_not_fit_is_refused(setting: tuple[str, str], told: str) -> None:
    with pytest.raises(InvalidError, match=rf"\[SINK_UNSUITABLE\].*{told}"):
        MysqlCase.sink(table="results", key=["k"]).open(context())
    query(f"SET GLOBAL {setting[0]} = {setting[1]}")
    MysqlCase.sink(table="results", key=["k"]).open(context())


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "_OLDEST_MARIADB", (99, 1))
    with pytest.raises(InvalidError, match=r"\[SINK_UNSUITABLE\].*has version 10.*: the sink needs MariaDB 99\.1"):
        MysqlCase.sink(table="results", key=["k"]).open(context())


def test_settings_of_the_server_that_would_change_values_do_not_count(
    mysql_server: MysqlServer, tmp_path: Path
) -> None:
    wrong = {"sql_mode": "''", "time_zone": "'+05:00'", "tx_isolation": "'REPEATABLE-READ'", "autocommit": "1"}
    kept = {name: query(f"SELECT @@global.{name}")[0][0] for name in wrong}
    for name, value in wrong.items():
        query(f"SET GLOBAL {name} = {value}")
    try:
        moment = datetime(2013, 1, 31, 6, 5, 0, 1, tzinfo=UTC)
        schema = pa.schema([("k", pa.string()), ("v", pa.timestamp("us", "UTC")), ("_weight", pa.int64())])
        table = Table(MysqlCase, tmp_path, schema, ["k"])
        table.put(("back\\slash 'quote'", moment, 1))
        assert table.held()["v"].to_pylist() == [moment]
        assert query("SELECT k, concat(v) FROM t") == [("back\\slash 'quote'", "2013-01-31 06:05:00.000001")]
    finally:
        for name, value in kept.items():
            query(f"SET GLOBAL {name} = %s", (value,))
