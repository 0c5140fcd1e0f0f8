"""Sinks of tables beyond the laws of every sink, in each kind of database: keys, other people's tables, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boatlift.connectors.databases import ledger
from boatlift.dataflow.contracts import Outcome, SinkContext
from boatlift.errors import DataError, DivergedError, InvalidError
from connectors.conformance import SCHEMA, STORE, as_taken, context, put, rows_of, visible
from connectors.database_cases import KEYED, Case, Table, kind_of, opened

TWO_KEYS = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64()), ("_weight", pa.int64())])


@pytest.fixture(params=KEYED)
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    request.getfixturevalue(f"{kind_of(case)}_server")
    return case


def test_a_steps_deletes_come_before_its_upserts(case: Case, tmp_path: Path) -> None:
    table = Table(case, tmp_path, TWO_KEYS, ["a", "b"])
    table.put(("x", 1, 1, 1), ("y", 1, 1, 1))
    table.put(("x", 1, 2, 1), ("x", 1, 1, -1), ("y", 1, 1, -1), ("z", 1, 0, -1))
    assert table.rows() == [("x", 1, 2)]


def test_two_rows_of_one_key_in_a_step_are_refused(case: Case, tmp_path: Path) -> None:
    table = Table(case, tmp_path, TWO_KEYS, ["a", "b"])
    with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\].*\('x', 1\)"):
        table.put(("x", 1, 1, 1), ("y", 1, 1, 1), ("x", 1, 2, 1))
    assert table.rows() == []
    table.put(("x", 1, 1, 1))


def test_a_second_row_of_a_unique_key_is_refused_and_nothing_of_its_step_is_there(case: Case, tmp_path: Path) -> None:
    table = Table(case, tmp_path, TWO_KEYS, ["a", "b"], unique=True)
    table.put(("x", 1, 1, 1), ("y", 1, 1, 1))
    table.put(("x", 1, 1, -1), ("x", 1, 2, 1), ("y", 1, 1, -1), ("", 3, 3, 1))
    held = [("", 3, 3), ("x", 1, 2)]
    assert table.rows() == held
    for _ in range(2):
        with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\] a step has a second row for key .*unique=True"):
            table.put(("a", 1, 1, 1), ("", 3, 3, -1), ("x", 1, 3, 1), ("z", 1, 1, 1))
        assert table.rows() == held
        assert case.on.query(f"SELECT max(step) FROM {case.steps}") == [(1,)]
    table.put(("x", 1, 2, -1), ("x", 1, 3, 1))
    assert table.rows() == [("", 3, 3), ("x", 1, 3)]


def test_a_table_may_be_all_key(case: Case, tmp_path: Path) -> None:
    table = Table(case, tmp_path, pa.schema([("k", pa.int64()), ("_weight", pa.int64())]), ["k"])
    table.put((1, 1), (3, 1))
    table.put((1, 1), (3, 1), (2, 1))
    table.put((3, -1))
    assert table.rows() == [(1,), (2,)]
    with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\]"):
        table.put((5, 1), (5, 1))


def test_zeros_of_both_signs_are_one_key(case: Case, tmp_path: Path) -> None:
    table = Table(case, tmp_path, pa.schema([("k", pa.float64()), ("v", pa.int64()), ("_weight", pa.int64())]), ["k"])
    table.put((0.0, 1, 1))
    table.put((-0.0, 2, 1))
    assert [row[1] for row in table.rows()] == [2]
    with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\]"):
        table.put((0.0, 3, 1), (-0.0, 4, 1))
    table.put((0.0, 2, -1))
    assert table.rows() == []


def test_texts_that_differ_in_case_accents_or_spaces_are_different_keys(case: Case, tmp_path: Path) -> None:
    table = Table(case, tmp_path, pa.schema([("k", pa.string()), ("v", pa.int64()), ("_weight", pa.int64())]), ["k"])
    keys = ["a", "A", "a ", " a", "á", "a\u0301", "", " ", "ß", "ss", "a\t", "🚲", "\\", "'"]
    table.put(*((key, place, 1) for place, key in enumerate(keys)))
    table.put(*((key, place + 100, 1) for place, key in enumerate(keys)))
    assert dict(table.rows()) == {key: place + 100 for place, key in enumerate(keys)}
    table.put(*((key, 0, -1) for key in keys[::2]))
    assert dict(table.rows()) == {key: place + 100 for place, key in enumerate(keys) if place % 2}


def test_nothing_is_there_of_a_step_that_was_refused_in_its_last_rows(case: Case, tmp_path: Path) -> None:
    """Steps of several statements, or several pieces of COPY."""
    table = Table(case, tmp_path, pa.schema([("k", pa.int64()), ("v", pa.int64()), ("_weight", pa.int64())]), ["k"])
    case.on.query("ALTER TABLE t ADD CHECK (v < 150000)")
    with pytest.raises(DataError, match=r"\[VALUE_REFUSED\]"):
        table.put(*((each, each, 1) for each in range(150_001)))
    assert table.rows() == []
    table.put(*((each, each, 1) for each in range(150_000)))
    assert len(table.rows()) == 150_000


@pytest.mark.parametrize(
    "options",
    [
        {"key": "k"},
        {"key": []},
        {"key": ["k", "k"]},
        {"key": ["k"], "table": ""},
        {"key": ["k"], "table": "x" * 65},
        {"key": ["k"], "table": "_boatlift_sinks"},
        {"unique": True},
        {"key": ["k"], "unique": "k"},
        {"key": ["k"], "lock_timeout": 0},
        {"key": ["k"], "lock_timeout": float("nan")},
        {"key": ["k"], "statement_timeout": 1e9},
    ],
)
def test_options_that_make_no_sense_are_refused(case: Case, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\]"):
        case.sink(**({"table": "t"} | options))


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("DROP TABLE results", "SINK_DAMAGED"),
        ("ALTER TABLE results ADD COLUMN mine int", "SINK_OF_ANOTHER_DATAFLOW"),
        ("DELETE FROM {sinks}", "SINK_OF_ANOTHER_DATAFLOW"),
        ("DELETE FROM {steps} WHERE step = 1", "SINK_GAP"),
        ("UPDATE {sinks} SET format = 2", "NEWER_FORMAT"),
    ],
)
def test_a_ledger_and_a_table_that_do_not_fit_are_refused(case: Case, tmp_path: Path, sql: str, condition: str) -> None:
    opened(case, 2, tmp_path / "x").close()
    case.on.query(sql.format(sinks=case.sinks, steps=case.steps))
    with pytest.raises(DataError, match=rf"\[{condition}\]"):
        opened(case, 2, tmp_path / "x")


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("DROP TABLE results", "SINK_DAMAGED"),
        ("ALTER TABLE results DROP COLUMN name", "SINK_DAMAGED"),
        ("ALTER TABLE results ADD COLUMN mine int NOT NULL DEFAULT 1 CHECK (value < 0)", "VALUE_REFUSED"),
        ("CREATE UNIQUE INDEX mine ON results (value)", "VALUE_REFUSED"),
    ],
)
def test_a_table_that_is_altered_while_it_is_written_stops_the_step(
    case: Case, tmp_path: Path, sql: str, condition: str
) -> None:
    sink = opened(case, 1, tmp_path / "x")
    case.on.query("DELETE FROM results")
    case.on.query(sql)
    rows = [*as_taken(sink, rows_of(1)), (1_000, "equal in the unique index", 0.0, 1)]
    with pytest.raises(DataError, match=rf"\[{condition}\]"):
        put(sink, tmp_path / "x", 1, rows)
    assert case.on.query(f"SELECT max(step) FROM {case.steps}") == [(0,)]
    if condition == "SINK_DAMAGED":  # and the next start does not take the column for a new one
        with pytest.raises(DataError, match=r"\[SINK_DAMAGED\]"):
            case.sink(table="results", key=["k"]).open(context(2))
    else:
        assert case.on.query("SELECT * FROM results") == []


def test_views_are_not_overwritten(case: Case) -> None:
    case.on.query("CREATE VIEW results AS SELECT 1 AS k")
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\] .* was not made by a sink"):
        opened(case, 0, Path())


def test_a_sink_that_wrote_to_another_table_is_refused(case: Case) -> None:
    case.sink(table="old", key=["k"]).open(context())
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*old"):
        case.sink(table="new", key=["k"]).open(context(2))


def test_several_sinks_share_a_database_each_with_its_own_steps(case: Case, tmp_path: Path) -> None:
    sinks = [case.sink(table=name, key=["k"]) for name in ("one", "two")]
    for sink, name in zip(sinks, ("a", "b"), strict=True):
        assert sink.open(context(sink=name)) is None
    for step in range(2):
        put(sinks[0], tmp_path / "x", step)
    put(sinks[1], tmp_path / "x", 0)
    for sink, name, newest in zip(sinks, ("a", "b"), (1, 0), strict=True):
        held = sink.open(context(2, sink=name))
        assert held is not None
        assert held.step == newest


def test_the_ledger_keeps_so_many_steps_and_older_ones_are_not_compared(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledger, "KEPT_STEPS", 3)
    sink = opened(case, 6, tmp_path / "x")
    assert case.on.query(f"SELECT step FROM {case.steps} ORDER BY step") == [(3,), (4,), (5,)]
    assert list(sink.verify()) == []
    for step in (1, 2):
        assert put(sink, tmp_path / "x", step) is Outcome.DROPPED
        assert f"step {step} is too old" in caplog.text
    with pytest.raises(DivergedError):
        sink.commit(3, 1, "another digest", [])
    case.on.query(f"DELETE FROM {case.steps} WHERE step = 3")
    assert [finding.condition for finding in sink.verify()] == ["SINK_GAP"]


def test_a_later_program_may_have_more_columns(case: Case, tmp_path: Path) -> None:
    fewer = pa.schema([SCHEMA.field("k"), SCHEMA.field("name"), SCHEMA.field("_weight")])
    sink = case.sink(table="results", key=["k"])
    sink.open(SinkContext("flow", "out", STORE, 1, fewer, True))
    batch = pa.record_batch([pa.array([1000]), pa.array(["x"]), pa.array([1])], schema=fewer)
    sink.commit(0, 1, "d", [sink.stager().stage(str(tmp_path), "p", 0, iter([batch]))])
    for token in (2, 3):  # the first of them ends before it adds the column
        later = case.sink(table="results", key=["k"])
        later.open(context(token))
        assert case.on.query("SELECT * FROM results") == [(1000, "x")]
        assert later.commit(0, 1, "d", []) is Outcome.DROPPED, "a replay, which adds no column"
    put(later, tmp_path / "x", 1)
    assert (1000, "x", None) in case.on.query("SELECT * FROM results")
    later.open(context(4))
    put(later, tmp_path / "x", 2)
    assert list(later.verify()) == []


def test_what_a_table_holds_is_read_with_its_declared_types(case: Case, tmp_path: Path) -> None:
    sink = opened(case, 2, tmp_path / "x")
    assert sink._table is not None
    held = sink._transactions.transaction(sink._table.held, "held", writes=False)
    assert held.schema.types == SCHEMA.types
    assert sorted((tuple(row.values())[:3] for row in held.to_pylist()), key=repr) == visible(sink, 2)
    assert held["_weight"].unique().to_pylist() == [1]
