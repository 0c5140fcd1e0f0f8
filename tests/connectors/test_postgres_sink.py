"""The PostgreSQL sink beyond the laws of every sink: keys, values, other people's tables, damage."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from boatlift.connectors import postgres
from boatlift.connectors.databases.postgres import table
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import DataError, InvalidError
from connectors.conformance import STORE, context, put, visible
from connectors.database_cases import Table, opened
from connectors.sink_cases import PostgresCase
from support.postgres import CONNINFO, query

pytestmark = pytest.mark.usefixtures("postgres_server")


TWO_KEYS = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64()), ("_weight", pa.int64())])


@pytest.fixture(params=["NULLS NOT DISTINCT", "as in servers before 15"])
def nulls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "NULLS NOT DISTINCT":
        monkeypatch.setattr(table, "_NULLS_ARE_EQUAL", 999_999)


@pytest.mark.usefixtures("nulls")
class TestKeys:
    def test_null_in_a_key_is_one_key(self, tmp_path: Path) -> None:
        table = Table(PostgresCase, tmp_path, TWO_KEYS, ["a", "b"])
        table.put((None, None, 1, 1), ("x", None, 2, 1), (None, 7, 3, 1), ("", 0, 4, 1), ("x", 7, 5, 1))
        table.put((None, None, 10, 1), ("x", None, 20, 1), (None, 7, 30, 1), ("", 0, 40, 1), ("x", 7, 50, 1))
        held = [(None, None, 10), ("x", None, 20), (None, 7, 30), ("", 0, 40), ("x", 7, 50)]
        assert table.rows() == sorted(held, key=repr)
        table.put((None, None, 0, -1), (None, 7, 0, -1), ("x", 7, 0, -1), (None, 7, 31, 1))
        assert table.rows() == sorted([("x", None, 20), ("", 0, 40), (None, 7, 31)], key=repr)

    @pytest.mark.parametrize("twice", [("x", 1), ("x", None), (None, None)])
    def test_two_rows_of_one_key_in_a_step_are_refused(self, tmp_path: Path, twice: tuple[Any, ...]) -> None:
        table = Table(PostgresCase, tmp_path, TWO_KEYS, ["a", "b"])
        with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\]") as caught:
            table.put((*twice, 1, 1), ("y", 1, 1, 1), (*twice, 2, 1))
        assert repr(twice) in str(caught.value)
        assert table.rows() == []

    @pytest.mark.parametrize("key", [("x", 1), ("x", None), (None, None)])
    def test_a_second_row_of_a_unique_key_is_refused_and_nothing_of_its_step_is_there(
        self, tmp_path: Path, key: tuple[Any, ...]
    ) -> None:
        table = Table(PostgresCase, tmp_path, TWO_KEYS, ["a", "b"], unique=True)
        table.put((*key, 1, 1), ("y", 1, 1, 1))
        table.put((*key, 1, -1), (*key, 2, 1), ("y", 1, 1, -1), (None, 3, 3, 1))
        held = sorted([(*key, 2), (None, 3, 3)], key=repr)
        assert table.rows() == held
        for _ in range(2):
            with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\] a step has a second row for key"):
                table.put(("a", 1, 1, 1), (None, 3, 3, -1), (*key, 3, 1), ("z", 1, 1, 1))
            assert table.rows() == held
            assert query("SELECT max(step) FROM _boatlift.steps") == [(1,)]
        table.put((*key, 2, -1), (*key, 3, 1))
        assert table.rows() == sorted([(*key, 3), (None, 3, 3)], key=repr)

    def test_a_table_may_be_all_key(self, tmp_path: Path) -> None:
        table = Table(PostgresCase, tmp_path, pa.schema([("k", pa.int64()), ("_weight", pa.int64())]), ["k"])
        table.put((1, 1), (None, 1))
        table.put((1, 1), (None, 1), (2, 1))
        assert table.rows() == [(1,), (2,), (None,)]
        with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\]"):
            table.put((5, 1), (5, 1))


def test_lookups_and_deletes_by_key_use_the_index_also_for_null(tmp_path: Path) -> None:
    table = Table(PostgresCase, tmp_path, TWO_KEYS, ["a", "b"])
    table.put(*(("x", each, 1, 1) for each in range(3000)), (None, 1, 1, 1))
    query("ANALYZE t")
    for condition in ("a IS NULL AND b = 1", "a = 'x' AND b = 1"):
        plan = query(f"EXPLAIN SELECT v FROM t WHERE {condition}")
        assert any("Index" in line for (line,) in plan), plan


def test_names_are_quoted(tmp_path: Path) -> None:
    schema = pa.schema([('order by "x', pa.int64()), ("sel%s ect", pa.string()), ("_weight", pa.int64())])
    sink = postgres(CONNINFO, table='ta"ble; --', key=['order by "x'])
    sink.open(SinkContext("flow'", 'o"ut', STORE, 1, schema, True))
    batch = pa.record_batch([pa.array([1]), pa.array(["x"]), pa.array([1])], schema=schema)
    sink.commit(0, 1, "d", [sink.stager().stage(str(tmp_path), "p", 0, iter([batch]))])
    assert query('SELECT * FROM "ta""ble; --"') == [(1, "x")]
    sink.open(SinkContext("flow'", 'o"ut', STORE, 2, schema, True))
    assert list(sink.verify()) == []


ODD_NAN = np.array([0x7FF8_0000_0000_0123], np.uint64).view(np.float64)

VALUES: dict[str, tuple[pa.Array, str, list[Any]]] = {
    "boolean": (pa.array([True, False, None]), "boolean", [True, False, None]),
    "byte": (pa.array([-128, 127], pa.int8()), "smallint", [-128, 127]),
    "short": (pa.array([-(2**15), None, 2**15 - 1], pa.int16()), "smallint", [-(2**15), None, 2**15 - 1]),
    "integer": (pa.array([-(2**31), 2**31 - 1], pa.int32()), "integer", [-(2**31), 2**31 - 1]),
    "long": (pa.array([-(2**63), 2**63 - 1, None]), "bigint", [-(2**63), 2**63 - 1, None]),
    "unsigned": (pa.array([2**32 - 1], pa.uint32()), "bigint", [2**32 - 1]),
    "float": (pa.array([0.1, None, -0.0], pa.float32()), "real", [0.1, None, -0.0]),
    "double": (
        pa.array([0.1, -0.0, 5e-324, math.inf, -math.inf, None]),
        "double precision",
        [0.1, -0.0, 5e-324, math.inf, -math.inf, None],
    ),
    "decimal": (
        pa.array([Decimal("1.5"), Decimal("0E-10"), Decimal("-1E-9"), None], pa.decimal128(20, 10)),
        "numeric(20,10)",
        [Decimal("1.5000000000"), Decimal("0.0000000000"), Decimal("-0.0000000010"), None],
    ),
    "long decimal": (pa.array([Decimal(10**38 - 1)], pa.decimal128(38, 0)), "numeric(38,0)", [Decimal(10**38 - 1)]),
    "text": (
        pa.array(["", "é🚲", "a\tb\\N\n", None, "x" * 100_000]),
        "text",
        ["", "é🚲", "a\tb\\N\n", None, "x" * 100_000],
    ),
    "large text": (pa.array(["x", None], pa.large_string()), "text", ["x", None]),
    "binary": (pa.array([b"", b"\x00\xff", None]), "bytea", [b"", b"\x00\xff", None]),
    "fixed binary": (pa.array([b"ab", None], pa.binary(2)), "bytea", [b"ab", None]),
    "date": (
        pa.array([date(1, 1, 1), date(2013, 1, 31), date(9999, 12, 31), None]),
        "date",
        [date(1, 1, 1), date(2013, 1, 31), date(9999, 12, 31), None],
    ),
    "instant": (
        pa.array([datetime(2013, 1, 31, 6, 5, 0, 1, tzinfo=UTC), None], pa.timestamp("us", "Europe/Berlin")),
        "timestamp with time zone",
        [datetime(2013, 1, 31, 6, 5, 0, 1, tzinfo=UTC), None],
    ),
    "timestamp": (
        pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us")),  # noqa: DTZ001
        "timestamp without time zone",
        [datetime(1969, 12, 31, 23, 59, 59, 999999)],  # noqa: DTZ001
    ),
    "time": (pa.array([time(6, 5, 0, 1), None], pa.time64("us")), "time without time zone", [time(6, 5, 0, 1), None]),
}


@pytest.mark.parametrize("key", [None, ["k"], ["v"]])
@pytest.mark.parametrize("what", VALUES)
def test_what_values_are_kept_as(tmp_path: Path, what: str, key: list[str] | None) -> None:
    column, kind, kept = VALUES[what]
    numbers, ones = pa.array(range(len(column))), pa.array([1] * len(column))
    schema = pa.schema([("k", pa.int64()), ("v", column.type), ("_weight", pa.int64())])
    if key == ["v"] and max((len(each) for each in kept if isinstance(each, str)), default=0) > 1000:
        pytest.skip("longer than an entry of an index")
    table = Table(PostgresCase, tmp_path, schema, key)
    for _ in range(2):
        table.put_columns(numbers, column, ones)
    read = query("SELECT v FROM t ORDER BY k" if key else "SELECT DISTINCT ON (k) v FROM t ORDER BY k")
    values = [each.astimezone(UTC) if isinstance(each, datetime) and each.tzinfo else each for (each,) in read]
    assert list(map(repr, values)) == list(map(repr, kept))
    assert query("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass "
                 "AND attname = 'v'") == [(kind,)]  # fmt: skip
    held = table.held()
    back = held.filter(pa.compute.is_valid(held["k"])).sort_by("k")["v"].unique()
    assert back.to_pylist() == pa.chunked_array([column]).unique().to_pylist()
    assert back.type == column.type


def test_bits_of_floats_stay(tmp_path: Path) -> None:
    table = Table(PostgresCase, tmp_path, pa.schema([("k", pa.int64()), ("v", pa.float64())]), ["k"])
    table.put_columns(pa.array([1, 2, 3]), pa.array([ODD_NAN[0], math.nan, -0.0]))
    sent = [bytes(each) for (each,) in query("SELECT float8send(v) FROM t ORDER BY k")]
    assert sent[0].hex() == "7ff8000000000123"
    assert [each.hex()[:4] for each in sent[1:]] == ["7ff8", "8000"]


FAR = {
    "dates": (pa.date32(), [-2_440_588, 19_675_925, 2_145_042_905], [-2_440_589, 2_145_042_906, 2**31 - 1, -(2**31)]),
    "timestamps": (
        pa.timestamp("us"),
        [-210_866_803_200_000_000, 2**63 - 1, 253_402_300_800_000_000],
        [-210_866_803_200_000_001, -(2**63)],
    ),
    "instants": (pa.timestamp("us", "UTC"), [-210_866_803_200_000_000, 2**63 - 1], [-210_866_803_200_000_001]),
}


@pytest.mark.parametrize("what", FAR)
def test_times_are_kept_as_far_as_the_server_has_them_and_refused_beyond(tmp_path: Path, what: str) -> None:
    kind, inside, outside = FAR[what]
    number = pa.int32() if kind == pa.date32() else pa.int64()
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    table = Table(PostgresCase, tmp_path, schema, ["k"])
    table.put_columns(pa.array(range(len(inside))), pa.array(inside, number).cast(kind))
    held = table.held()
    assert held.sort_by("k")["v"].cast(number).to_pylist() == inside
    for value in outside:
        with pytest.raises(DataError, match=r"\[VALUE_REFUSED\] column v holds a time outside"):
            table.put_columns(pa.array([9]), pa.array([value], number).cast(kind))
    assert query("SELECT count(*) FROM t") == [(len(inside),)]


@pytest.mark.parametrize(
    ("schema", "rows", "told"),
    [
        ([("k", pa.int64()), ("v", pa.string())], [(1, "a\0b")], "column v"),
        (
            [("k", pa.string()), ("v", pa.int64())],
            [("".join(chr(33 + n * 7919 % 9000) for n in range(9000)), 1)],
            "index",
        ),
    ],
)
def test_values_that_it_cannot_hold_are_refused_and_the_sink_goes_on(
    tmp_path: Path, schema: Any, rows: Any, told: str
) -> None:
    table = Table(PostgresCase, tmp_path, pa.schema(schema), ["k"])
    with pytest.raises(DataError, match=rf"\[VALUE_REFUSED\].*{told}"):
        table.put(*rows)
    assert table.rows() == []
    table.put()
    assert table.step == 0


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.struct([("x", pa.int64())]),
        pa.null(),
        pa.duration("us"),
        pa.uint64(),
        pa.timestamp("ns"),
    ],
)
def test_types_that_it_cannot_hold_are_refused(kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    with pytest.raises(InvalidError, match=r"\[TYPE_REFUSED\].*v"):
        postgres(CONNINFO, table="t", key=["k"]).open(SinkContext("flow", "out", STORE, 1, schema, False))
    assert query("SELECT to_regclass('t'), to_regclass('_boatlift.sinks')") == [(None, None)]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (["k", "v"], ["nope"]),
        (["k", "v\0"], ["k"]),
        (["k", "é" * 32], ["k"]),
        (["k", "ctid"], ["k"]),
        (["k", ""], ["k"]),
    ],
)
def test_columns_that_it_cannot_have_are_refused(columns: list[str], key: list[str]) -> None:
    schema = pa.schema([(name, pa.int64()) for name in columns])
    with pytest.raises(InvalidError, match=r"\[SCHEMA_MISMATCH\]"):
        postgres(CONNINFO, table="t", key=key).open(SinkContext("flow", "out", STORE, 1, schema, False))


@pytest.mark.parametrize(
    "options",
    [
        {"table": "a.b.c" * 20},
        {"table": "_boatlift.sinks"},
        {"conninfo": "dbname=x pass word=geheim"},
        {"conninfo": "postgresql://u:geheim@[/x"},
        {"conninfo": 5},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\]") as caught:
        postgres(**({"conninfo": CONNINFO, "table": "t"} | options))
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("DROP TABLE results", "SINK_DAMAGED"),
        (("DO $$ BEGIN EXECUTE 'DROP INDEX ' || (SELECT indexrelid::regclass FROM pg_index WHERE indrelid = "
         "'results'::regclass); END $$"), "SINK_DAMAGED"),
        ("ALTER TABLE results ADD COLUMN mine int", "SINK_OF_ANOTHER_DATAFLOW"),
        ("ALTER TABLE results ALTER COLUMN value TYPE real", "SINK_OF_ANOTHER_DATAFLOW"),
        ("DELETE FROM _boatlift.sinks", "SINK_OF_ANOTHER_DATAFLOW"),
        ("DELETE FROM _boatlift.steps WHERE step = 1", "SINK_GAP"),
        ("UPDATE _boatlift.sinks SET format = 2", "NEWER_FORMAT"),
    ],
)  # fmt: skip
def test_a_ledger_and_a_table_that_do_not_fit_are_refused(tmp_path: Path, sql: str, condition: str) -> None:
    opened(PostgresCase, 2, tmp_path / "x").close()
    query(sql)
    with pytest.raises(DataError, match=rf"\[{condition}\]"):
        opened(PostgresCase, 2, tmp_path / "x")


def test_a_lost_index_comes_back_by_the_statement_of_the_message(tmp_path: Path) -> None:
    opened(PostgresCase, 2, tmp_path / "x").close()
    query("DO $$ BEGIN EXECUTE 'DROP INDEX ' || (SELECT indexrelid::regclass FROM pg_index WHERE indrelid = "
          "'results'::regclass); END $$")  # fmt: skip
    with pytest.raises(DataError, match=r"\[SINK_DAMAGED\]") as caught:
        opened(PostgresCase, 2, tmp_path / "x")
    query(str(caught.value).partition("restore it (")[2].rpartition(")")[0])
    sink = opened(PostgresCase, 3, tmp_path / "x")
    assert sorted(query("SELECT * FROM results"), key=repr) == visible(sink, 3)


def test_several_sinks_share_a_database_each_with_its_own_steps(tmp_path: Path) -> None:
    query("CREATE SCHEMA sales")
    sinks = [postgres(CONNINFO, table=name, key=["k"]) for name in ("one", "sales.one")]
    for sink, name in zip(sinks, ("a", "b"), strict=True):
        assert sink.open(context(sink=name)) is None
    for step in range(2):
        put(sinks[0], tmp_path / "x", step)
    put(sinks[1], tmp_path / "x", 0)
    for sink, name, newest in zip(sinks, ("a", "b"), (1, 0), strict=True):
        held = sink.open(context(2, sink=name))
        assert held is not None
        assert held.step == newest


def test_synchronous_commit_is_on_whatever_the_role_has_chosen(tmp_path: Path) -> None:
    query("ALTER ROLE boatlift SET synchronous_commit = off")
    try:
        sink = opened(PostgresCase, 1, tmp_path / "x")
        query("CREATE TABLE seen (setting text)")
        query("CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN INSERT INTO seen VALUES "
              "(current_setting('synchronous_commit')); RETURN NULL; END $$ LANGUAGE plpgsql")  # fmt: skip
        query("CREATE TRIGGER note AFTER INSERT ON _boatlift.steps FOR EACH STATEMENT EXECUTE FUNCTION note()")
        sink.close()
        put(opened(PostgresCase, 0, tmp_path / "x"), tmp_path / "x", 1)
        assert query("SELECT * FROM seen") == [("on",)]
    finally:
        query("ALTER ROLE boatlift RESET synchronous_commit")


def test_nothing_outlives_a_transaction_as_poolers_ask(tmp_path: Path) -> None:
    sink = opened(PostgresCase, 3, tmp_path / "x")
    session = sink._transactions._session
    assert session is not None
    asked = "SELECT (SELECT count(*) FROM pg_prepared_statements), to_regclass('pg_temp._boatlift_step'), "
    settings = ", ".join(
        f"current_setting('{each}')" for each in ("lock_timeout", "statement_timeout", "application_name")
    )
    assert session.execute(asked + settings).fetchone() == (0, None, "0", "0", "")
    assert session.info.transaction_status.name == "IDLE"
