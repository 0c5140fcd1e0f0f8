"""The Delta sink beyond the laws of every sink: other writers, what is refused, what it holds."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from boatlift.connectors import delta
from boatlift.connectors.delta import sink as delta_sink
from boatlift.connectors.delta.table import DeltaPlace, StepOfTable
from boatlift.dataflow.contracts import Committed, Outcome, SinkContext
from boatlift.errors import DataError, FencedError, InvalidError, UnavailableError
from boatlift.storage.filesystem import FileSystem
from connectors.conformance import SCHEMA, STORE, context, ordered, put, rows_of, stage, visible
from connectors.sink_cases import DeltaCase


def held(place: str | Path) -> list[tuple[Any, ...]]:
    table = pa.table(DeltaTable(str(place)).to_pyarrow_dataset().to_table())
    return ordered(tuple(row.values()) for row in table.select(SCHEMA.names).to_pylist())


# --- other programs at the table ---


def test_a_compaction_changes_nothing_for_the_ledger(tmp_path: Path) -> None:
    sink = delta(tmp_path / "place")
    sink.open(context())
    for step in range(4):
        put(sink, tmp_path, step)
        DeltaTable(str(tmp_path / "place")).optimize.compact()
    assert held(tmp_path / "place") == visible(sink, 4)
    assert put(sink, tmp_path, 3) is Outcome.DROPPED
    assert delta(tmp_path / "place").open(context(2)) == Committed(3, len(rows_of(3)), "digest 3")


def test_a_commit_of_another_program_in_the_middle_of_ours_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, written = tmp_path / "place", DeltaPlace.write
    sink = delta(place)
    sink.open(context())
    put(sink, tmp_path, 0)

    def late(self: DeltaPlace, *given: Any) -> Any:
        DeltaTable(str(place)).optimize.compact()
        write_deltalake(place, pa.table({"k": [7], "name": ["other"], "value": [1.0], "_weight": [1]}), mode="append")
        return written(self, *given)

    monkeypatch.setattr(DeltaPlace, "write", late)
    assert put(sink, tmp_path, 1) is Outcome.APPENDED
    assert held(place) == ordered([*visible(sink, 2), (7, "other", 1.0, 1)])


def test_programs_that_keep_committing_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, commit = tmp_path / "place", DeltaPlace.commit
    sink = delta(place)
    sink.open(context())

    def late(self: DeltaPlace, *given: Any) -> bool:
        write_deltalake(place, pa.table({"k": [7], "name": ["other"], "value": [1.0], "_weight": [1]}), mode="append")
        return commit(self, *given)

    monkeypatch.setattr(delta_sink, "_ATTEMPTS", 3)
    with monkeypatch.context() as busy:
        busy.setattr(DeltaPlace, "commit", late)
        with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] other programs keep committing"):
            put(sink, tmp_path, 0)
    assert sink.open(context()) is None
    assert put(sink, tmp_path, 0) is Outcome.APPENDED


def test_a_commit_is_never_made_on_top_of_a_version_that_was_not_checked(tmp_path: Path) -> None:
    """The client would retry by itself, on top of whatever was committed meanwhile."""
    sink = delta(tmp_path / "place")
    sink.open(context())
    table = DeltaPlace(str(tmp_path / "place"))
    table.load()
    record = StepOfTable(1, 0, 0, "digest")
    write_deltalake(
        tmp_path / "place",
        pa.table({"k": [7], "name": ["other"], "value": [1.0], "_weight": [1]}),
        mode="append",
    )
    assert not table.commit([], {"boatlift/flow/out": 0}, record)
    assert table.newest("boatlift/flow/out") is None
    table.refresh()
    assert table.commit([], {"boatlift/flow/out": 0}, record)


def test_an_owner_that_waits_in_its_commit_loses_it_to_its_successors_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, commit = tmp_path / "place", DeltaPlace.commit
    older, newer = delta(place), delta(place)
    older.open(context(1))
    put(older, tmp_path, 0)
    waits, goes_on = threading.Event(), threading.Event()

    def held_up(self: DeltaPlace, files: Any, *given: Any) -> bool:
        if self is older._table:
            waits.set()
            assert goes_on.wait(60)
        return commit(self, files, *given)

    monkeypatch.setattr(DeltaPlace, "commit", held_up)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(put, older, tmp_path, 1)
        assert waits.wait(60)
        assert newer.open(context(2)) == Committed(0, len(rows_of(0)), "digest 0")
        assert put(newer, tmp_path, 1) is Outcome.APPENDED
        goes_on.set()
        with pytest.raises(FencedError, match=r"\[FENCED\] owner 2 has taken over"):
            late.result()
    assert held(place) == visible(newer, 2)


def altered(table: DeltaTable, how: str) -> None:
    from deltalake import Field, TableFeatures
    from deltalake.schema import PrimitiveType

    match how:
        case "column":
            table.alter.add_columns([Field("more", PrimitiveType("long"))])
        case "feature":
            table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
        case "forgets":
            table.alter.set_table_properties(
                {"delta.setTransactionRetentionDuration": "interval 1 days"}, raise_if_not_exists=False
            )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("column", r"\[SINK_OF_ANOTHER_DATAFLOW\].*more int64.*and this sink writes"),
        ("feature", r"\[SINK_UNSUITABLE\].*deletionVectors"),
        ("forgets", r"\[SINK_UNSUITABLE\].*delta.setTransactionRetentionDuration"),
    ],
)
def test_a_table_that_is_being_altered_is_not_written(tmp_path: Path, how: str, said: str) -> None:
    sink = delta(tmp_path / "place")
    sink.open(context())
    put(sink, tmp_path, 0)
    before = DeltaTable(str(tmp_path / "place")).file_uris()
    altered(DeltaTable(str(tmp_path / "place")), how)
    with pytest.raises((DataError, InvalidError), match=said):
        put(sink, tmp_path, 1)
    with pytest.raises((DataError, InvalidError), match=said):
        delta(tmp_path / "place").open(context(2))
    assert DeltaTable(str(tmp_path / "place")).file_uris() == before


def test_a_table_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "place", pa.table({"k": [1], "name": ["x"], "value": [0.5], "_weight": [1]}))
    before = DeltaTable(str(tmp_path / "place")).version()
    for owner in (context(), context(dataflow="other")):
        with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*was not made by a sink"):
            delta(tmp_path / "place").open(owner)
    assert DeltaTable(str(tmp_path / "place")).version() == before


def test_a_partitioned_table_is_refused(tmp_path: Path) -> None:
    owner = json.dumps({"dataflow": "flow", "sink": "out", "store": STORE})
    DeltaTable.create(
        tmp_path / "place", SCHEMA, partition_by=["k"], configuration={"boatlift": owner}, raise_if_key_not_exists=False
    )
    with pytest.raises(InvalidError, match=r"\[SINK_UNSUITABLE\].*is partitioned by k"):
        delta(tmp_path / "place").open(context())


# --- what a table holds ---


def test_further_columns_are_added_and_fewer_refused(tmp_path: Path) -> None:
    place = tmp_path / "place"
    sink = delta(place)
    sink.open(context())
    put(sink, tmp_path, 0)
    wider = pa.schema([*list(SCHEMA)[:3], ("more", pa.int64()), SCHEMA.field("_weight")])
    later = delta(place)
    assert later.open(SinkContext("flow", "out", STORE, 2, wider, changes=True)) == Committed(0, 41, "digest 0")
    rows = [(1, "x", 0.5, 7, 1)]
    receipts = stage(later, tmp_path, 1, rows, wider)
    assert later.commit(1, 1, "one", receipts) is Outcome.APPENDED
    found = pa.table(DeltaTable(str(place)).to_pyarrow_dataset().to_table()).to_pylist()
    assert len(found) == 42
    assert {row["more"] for row in found} == {None, 7}
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*more"):
        delta(place).open(context(3))


TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.5, float("inf")]),
    "double": (pa.float64(), [5e-324, -0.0]),
    "flag": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["", "ä\0'"]),
    "bytes": (pa.binary(), [b"", b"\0\xff"]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "at": (pa.timestamp("us", tz="UTC"), [datetime(1600, 1, 1, 1, 2, 3, 4, UTC), datetime(2999, 1, 1, tzinfo=UTC)]),
    "local": (pa.timestamp("us"), [datetime(1600, 1, 1, 1, 2, 3, 4), datetime(2999, 1, 1)]),  # noqa: DTZ001
    "exact": (pa.decimal128(38, 18), [Decimal("1.000000000000000001"), Decimal(-99999999999999999999)]),
    "list": (pa.list_(pa.int32()), [[], [1, None]]),
    "map": (pa.map_(pa.string(), pa.float64()), [[], [("a", 0.5)]]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
}


def test_values_of_every_type_come_back(tmp_path: Path) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
    rows = [*zip(*(values for _, values in TYPES.values()), strict=True), (None,) * len(TYPES)]
    sink = delta(tmp_path / "place")
    sink.open(SinkContext("flow", "out", STORE, 1, schema, changes=False))
    sink.commit(0, len(rows), "all", stage(sink, tmp_path, 0, rows, schema))
    table = pa.table(DeltaTable(str(tmp_path / "place")).to_pyarrow_dataset().to_table())
    assert ordered(tuple(row.values()) for row in table.to_pylist()) == ordered(rows)
    assert {name: table.schema.field(name).type for name in ("at", "local", "exact")} == {
        name: TYPES[name][0] for name in ("at", "local", "exact")
    }


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.month_day_nano_interval(), pa.null(), pa.time64("us")])
def test_types_that_a_table_cannot_hold_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int64()), ("wrong", kind)])
    with pytest.raises(InvalidError, match=r"\[TYPE_REFUSED\]"):
        delta(tmp_path / "place").open(SinkContext("flow", "out", STORE, 1, schema, changes=False))


@pytest.mark.parametrize(("names", "said"), [(["a b"], "character"), (["a", "A"], "have one name")])
def test_names_that_a_table_cannot_have_are_refused(tmp_path: Path, names: list[str], said: str) -> None:
    schema = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(InvalidError, match=rf"\[SCHEMA_MISMATCH\].*{said}.*rename"):
        delta(tmp_path / "place").open(SinkContext("flow", "out", STORE, 1, schema, changes=False))


def test_ranges_pass_over_no_row(tmp_path: Path) -> None:
    sink = delta(tmp_path / "place")
    sink.open(context())
    for step in range(5):
        put(sink, tmp_path, step)
    dataset = DeltaTable(str(tmp_path / "place")).to_pyarrow_dataset()
    for key in (0, 7, 28, 96):
        expected = [row for step in range(5) for row in rows_of(step) if row[0] == key]
        found = dataset.to_table(filter=pa.compute.field("k") == key).to_pylist()
        assert ordered(tuple(row.values()) for row in found) == ordered(expected)


def test_an_older_step_whose_commit_is_not_kept_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = delta(tmp_path / "place")
    sink.open(context())
    for step in range(3):
        put(sink, tmp_path, step)
    record = DeltaPlace.record

    def cleaned(self: DeltaPlace, step: int | None = None) -> StepOfTable | None:
        return None if step == 0 else record(self, step)

    monkeypatch.setattr(DeltaPlace, "record", cleaned)
    assert put(sink, tmp_path, 0) is Outcome.DROPPED
    assert "too old to be compared" in caplog.text


def test_commits_and_files_on_a_local_disk_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other programs too, and those that a killed process has left."""
    synced: list[str] = []
    monkeypatch.setattr(FileSystem, "sync_file", lambda _, path: synced.append(path.name))
    monkeypatch.setattr(FileSystem, "sync_folder", lambda _, path: synced.append(path.name))
    place = tmp_path / "place"
    sink = delta(place)
    sink.open(context())
    assert synced.index("00000000000000000000.json") < synced.index("00000000000000000001.json"), "schema, then claim"
    put(sink, tmp_path, 0)
    names = DeltaCase.files(place)
    assert names
    assert all(synced.index(name) < synced.index("00000000000000000002.json") for name in names)
    assert synced[-2:] == ["_delta_log", "place"]
    DeltaTable(str(place)).optimize.compact()
    write_deltalake(place, pa.table({"k": [7], "name": ["other"], "value": [1.0], "_weight": [1]}), mode="append")
    put(sink, tmp_path, 1)
    record = {path.name for path in (place / "_delta_log").glob("*.json")}
    assert record <= set(synced)
    synced.clear()
    delta(place).open(context(2))
    assert record <= set(synced)


def test_a_claim_without_a_digest_is_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of the newest step is not kept any more when an owner claims the table."""
    monkeypatch.setattr(sys.modules[DeltaPlace.__module__], "_LOOKED_AT", 2)
    place = tmp_path / "place"
    sink = delta(place)
    sink.open(context())
    put(sink, tmp_path, 0)
    for _ in range(3):
        write_deltalake(place, pa.table({"k": [7], "name": ["other"], "value": [1.0], "_weight": [1]}), mode="append")
    later = delta(place)
    newest = later.open(context(2))
    assert newest is not None
    assert newest.step == 0
    assert put(later, tmp_path, 0) is Outcome.DROPPED
    assert put(later, tmp_path, 1) is Outcome.APPENDED


def test_options_that_are_wrong() -> None:
    for options, said in (
        ({"path": "s3://bucket"}, "a delta sink cannot be at s3://bucket"),
        ({"path": "gs://bucket/x"}, "a delta sink cannot be at gs://bucket/x"),
        ({"path": "x", "compression": "lz4"}, "compression is 'lz4'"),
        ({"path": "x", "rows": 5}, "give every, too"),
        ({"path": "x", "every": "soon"}, "every"),
    ):
        with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\].*{said}"):
            delta(**options)  # type: ignore[arg-type]


def test_a_local_table_shares_the_bytes_of_a_piece_and_outlives_it(tmp_path: Path) -> None:
    sink = delta(tmp_path / "place")
    sink.open(context())
    staged = stage(sink, tmp_path, 0)
    pieces = [Path(each.place) for each in staged if each.place]
    inodes = {piece.stat().st_ino for piece in pieces}
    sink.commit(0, len(rows_of(0)), "digest 0", staged)
    assert {path.stat().st_ino for path in (tmp_path / "place").glob("*.parquet")} == inodes
    for piece in pieces:
        piece.unlink()
    assert held(tmp_path / "place") == visible(sink, 1)
