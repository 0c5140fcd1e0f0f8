"""The laws of sinks, one test each: what `boatlift.dataflow.contracts.Sink` promises (sources: `source_laws`).

A connector takes part by a *case* (`connectors.conformance`) and a class that derives from `SinkLaws`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from boatlift.dataflow.contracts import Committed, Delivery, KeepsNote, Outcome, Sink
from boatlift.errors import BoatliftError, DataError, DivergedError, FencedError, InvalidError
from connectors.conformance import (
    SCHEMA,
    AnyCase,
    as_taken,
    context,
    ordered,
    put,
    rows_of,
    stage,
    visible,
)


def _files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def _contents_of(folder: Path) -> dict[str, bytes]:
    """All that is durable; SQLite's shared memory (`-shm`) is not."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


class SinkLaws:
    """What `Sink` promises, law by law."""

    case: ClassVar[AnyCase]

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "place"

    @pytest.fixture
    def sink(self, folder: Path) -> Iterator[Sink]:
        sink = self.case.make(folder)
        yield sink
        sink.close()

    @pytest.fixture
    def successor(self, folder: Path) -> Iterator[Sink]:
        sink = self.case.make(folder)
        yield sink
        sink.close()

    def test_describes_itself(self, sink: Sink) -> None:
        assert sink.delivery in Delivery
        assert json.loads(json.dumps(sink.describe())) == sink.describe()
        assert sink.describe()["kind"]

    def test_sinks_of_one_place_name_it_and_those_of_others_do_not(self, sink: Sink, folder: Path) -> None:
        places = set(sink.capabilities.places)
        assert places & set(self.case.make_with_another_key(folder).capabilities.places)
        assert not places & set(self.case.make(folder.with_name("another")).capabilities.places)

    def test_a_new_place_holds_nothing(self, sink: Sink, folder: Path) -> None:
        assert sink.open(context()) is None
        assert self.case.read(folder) == []

    def test_open_returns_the_newest_step(self, sink: Sink, successor: Sink, folder: Path) -> None:
        sink.open(context())
        for step in range(3):
            put(sink, folder, step)
        sink.close()
        assert successor.open(context(2)) == Committed(2, len(rows_of(2)), "digest 2")

    def test_the_next_step_becomes_visible_whole(self, sink: Sink, folder: Path) -> None:
        sink.open(context())
        for step in range(4):
            assert put(sink, folder, step) is Outcome.APPENDED
            assert self.case.read(folder) == visible(sink, step + 1)

    def test_staging_shows_nothing(self, sink: Sink, folder: Path) -> None:
        sink.open(context())
        put(sink, folder, 0)
        stage(sink, folder, 1)
        assert self.case.read(folder) == visible(sink, 1)

    def test_a_step_without_rows_counts(self, sink: Sink, successor: Sink, folder: Path) -> None:
        sink.open(context())
        assert sink.commit(0, 0, "none", []) is Outcome.APPENDED
        assert sink.commit(0, 0, "none", []) is Outcome.DROPPED
        assert put(sink, folder, 1) is Outcome.APPENDED
        assert sink.commit(2, 0, "none", stage(sink, folder, 2, [])) is Outcome.APPENDED
        sink.close()
        assert successor.open(context(2)) == Committed(2, 0, "none")

    def test_pieces_are_taken_in_order_of_partition_whatever_the_order_of_receipts(
        self, sink: Sink, folder: Path
    ) -> None:
        sink.open(context())
        receipts = stage(sink, folder, 0)
        sink.commit(0, len(rows_of(0)), "digest 0", receipts[::-1])
        assert self.case.read(folder) == visible(sink, 1)

    def test_receipts_that_do_not_add_up_are_refused(self, sink: Sink, folder: Path) -> None:
        sink.open(context())
        receipts = stage(sink, folder, 0)
        with pytest.raises(BoatliftError, match=r"\[INTERNAL\]"):
            sink.commit(0, len(rows_of(0)), "digest 0", receipts[:1])
        assert self.case.read(folder) == []

    def test_an_earlier_step_with_the_same_content_is_dropped(self, sink: Sink, successor: Sink, folder: Path) -> None:
        sink.open(context())
        for step in range(3):
            put(sink, folder, step)
        for step in (2, 0, 1):
            assert put(sink, folder, step) is Outcome.DROPPED
        sink.close()
        successor.open(context(2))
        for step in range(3):
            assert put(successor, folder, step) is Outcome.DROPPED
        assert self.case.read(folder) == visible(sink, 3)
        assert put(successor, folder, 3) is Outcome.APPENDED

    @pytest.mark.parametrize(("rows", "digest"), [(41, "other"), (40, "digest 1")])
    def test_an_earlier_step_with_other_content_has_diverged(
        self, sink: Sink, folder: Path, rows: int, digest: str
    ) -> None:
        assert len(rows_of(1)) == 41
        sink.open(context())
        for step in range(3):
            put(sink, folder, step)
        with pytest.raises(DivergedError, match=r"\[DIVERGED\]"):
            sink.commit(1, rows, digest, stage(sink, folder, 1, rows_of(1)[:rows]))
        assert self.case.read(folder) == visible(sink, 3)
        assert put(sink, folder, 3) is Outcome.APPENDED

    def test_of_the_newest_step_the_first_row_that_differs_is_reported(self, sink: Sink, folder: Path) -> None:
        sink.open(context())
        for step in range(2):
            put(sink, folder, step)
        rows = rows_of(1)
        other = [*rows[:7], (rows[7][0], "something else", *rows[7][2:]), *rows[8:]]
        with pytest.raises(DivergedError) as raised:
            sink.commit(1, len(other), "other", stage(sink, folder, 1, other))
        assert "the first row that differs was {" in str(raised.value)
        assert "'step 1 row 7'" in str(raised.value)
        assert "something else" in str(raised.value)

    @pytest.mark.parametrize("held", [0, 2])
    def test_a_gap_is_refused(self, sink: Sink, folder: Path, held: int) -> None:
        sink.open(context())
        for step in range(held):
            put(sink, folder, step)
        with pytest.raises(DataError, match=r"\[SINK_GAP\]"):
            put(sink, folder, held + 1)
        assert self.case.read(folder) == visible(sink, held)
        assert put(sink, folder, held) is Outcome.APPENDED

    @pytest.mark.parametrize("step", [0, 1, 2])
    def test_an_older_owner_is_fenced(self, sink: Sink, successor: Sink, folder: Path, step: int) -> None:
        sink.open(context(1))
        for earlier in range(2):
            put(sink, folder, earlier)
        assert successor.open(context(2)) == Committed(1, len(rows_of(1)), "digest 1")
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            put(sink, folder, step)
        assert self.case.read(folder) == visible(sink, 2)
        assert put(successor, folder, 2) is Outcome.APPENDED
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            put(sink, folder, 2)
        with pytest.raises(FencedError, match=r"\[FENCED\]") as raised:
            sink.open(context(1))
        assert raised.value.newest == 2
        assert put(successor, folder, 3) is Outcome.APPENDED
        assert self.case.read(folder) == visible(sink, 4)

    def test_a_note_is_in_the_act_of_its_step_and_in_no_other(self, sink: Sink, successor: Sink, folder: Path) -> None:
        def opened(which: Sink, token: int) -> KeepsNote:
            which.open(context(token))
            keeps = which.capabilities.keeps_note
            assert keeps is not None
            return keeps

        if sink.capabilities.keeps_note is None:
            pytest.skip("it keeps no notes")
        keeps = opened(sink, 1)
        assert list(keeps.notes()) == []
        put(sink, folder, 0)
        keeps.note(bytes(range(256)))
        assert put(sink, folder, 1) is Outcome.APPENDED
        keeps.note(b"of a step that is dropped")
        assert put(sink, folder, 1) is Outcome.DROPPED
        assert set(opened(sink, 1).notes()) == {bytes(range(256))}
        assert put(sink, folder, 2) is Outcome.APPENDED  # without a note: the one before is gone with its step
        keeps, then = opened(sink, 1), opened(successor, 2)
        assert set(then.notes()) <= {bytes(range(256))}
        keeps.note(b"of an owner that is fenced")
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            put(sink, folder, 3)
        then.note(b"x" * then.note_bytes)
        assert put(successor, folder, 3) is Outcome.APPENDED
        assert set(opened(successor, 3).notes()) == {b"x" * then.note_bytes}

    def test_steps_that_are_taken_back_are_empty_and_known_by_the_owner_that_did_it(
        self, sink: Sink, successor: Sink, folder: Path
    ) -> None:
        able, then = sink.capabilities.takes_back, successor.capabilities.takes_back
        if able is None or then is None:
            pytest.skip("it takes no steps back")
        sink.open(context(1))
        assert able.newest_owner(-1) == 0
        for step in range(3):
            put(sink, folder, step)
        assert sink.commit(3, 0, "none", []) is Outcome.APPENDED
        assert [able.newest_owner(step) for step in range(4)] == [1] * 4
        successor.open(context(5))
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            able.take_back(0)
        for _ in range(2):
            then.take_back(0)
            assert self.case.read(folder) == visible(sink, 1)
            assert [then.newest_owner(step) for step in range(4)] == [1, 5, 5, 5]
        assert successor.commit(4, 0, "none", []) is Outcome.APPENDED

    def test_the_same_owner_may_open_again(self, sink: Sink, folder: Path) -> None:
        sink.open(context(1))
        put(sink, folder, 0)
        assert sink.open(context(1)) == Committed(0, len(rows_of(0)), "digest 0")
        assert put(sink, folder, 1) is Outcome.APPENDED

    @pytest.mark.parametrize("other", [{"dataflow": "other"}, {"sink": "other"}])
    @pytest.mark.parametrize("steps", [0, 2])
    def test_the_place_of_another_is_refused(
        self, sink: Sink, successor: Sink, folder: Path, other: dict[str, str], steps: int
    ) -> None:
        sink.open(context(1))
        for step in range(steps):
            put(sink, folder, step)
        with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\]"):
            successor.open(context(2, **other))
        assert put(sink, folder, steps) is Outcome.APPENDED  # the refused one has fenced no owner
        assert self.case.read(folder) == visible(sink, steps + 1)

    @pytest.mark.parametrize("token", [1, 2, 9])
    @pytest.mark.parametrize("steps", [0, 2])
    def test_the_place_of_another_store_is_refused_whatever_the_tokens_are(
        self, sink: Sink, successor: Sink, folder: Path, token: int, steps: int
    ) -> None:
        sink.open(context(2))
        for step in range(steps):
            put(sink, folder, step)
        before = _files_in(folder)
        for _ in range(2):
            with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_STORE\].* another store of dataflow flow"):
                successor.open(context(token, store="7" * 32))
        successor.close()
        assert _files_in(folder) == before, "no owner folder either"
        assert put(sink, folder, steps) is Outcome.APPENDED  # the refused one has fenced no owner
        assert self.case.read(folder) == visible(sink, steps + 1)

    def test_preflight_refuses_what_open_refuses_and_leaves_no_trace(
        self, sink: Sink, successor: Sink, folder: Path
    ) -> None:
        sink.open(context(1))
        put(sink, folder, 0)
        before = _files_in(folder)
        preflight = successor.capabilities.preflight
        if preflight is None:
            pytest.skip("a sink need not say so beforehand")
        preflight(context(0))
        for other in ({"dataflow": "other"}, {"sink": "other"}, {"store": "7" * 32}, {"store": ""}):
            kind = "STORE" if "store" in other else "DATAFLOW"
            with pytest.raises(DataError, match=rf"\[SINK_OF_ANOTHER_{kind}\]"):
                preflight(context(0, **other))
        successor.close()
        assert _files_in(folder) == before
        assert put(sink, folder, 1) is Outcome.APPENDED

    @pytest.mark.parametrize("steps", [0, 2])
    def test_another_key_is_refused(self, sink: Sink, folder: Path, steps: int) -> None:
        sink.open(context(1))
        for step in range(steps):
            put(sink, folder, step)
        other = self.case.make_with_another_key(folder)
        with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].* key "):
            other.open(context(2))
        other.close()
        assert put(sink, folder, steps) is Outcome.APPENDED
        assert self.case.read(folder) == visible(sink, steps + 1)

    def test_rows_of_a_stranger_are_refused(self, sink: Sink, folder: Path) -> None:
        self.case.spoil(folder)
        before = self.case.read(folder)
        with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\]"):
            sink.open(context())
        assert self.case.read(folder) == before

    @pytest.mark.parametrize("name", ["_weight", "_WEIGHT"])
    @pytest.mark.parametrize("changes", [False, True])
    def test_a_column_of_the_users_is_not_taken_for_the_weight(
        self, sink: Sink, folder: Path, name: str, changes: bool
    ) -> None:
        fields = [*list(SCHEMA)[:-1], pa.field(name, pa.int64()), *(list(SCHEMA)[-1:] if changes else [])]
        with pytest.raises(InvalidError, match=rf"\[SCHEMA_MISMATCH\].*{name}"):
            sink.open(replace(context(), schema=pa.schema(fields), changes=changes))
        assert not folder.exists()

    def test_rows_that_are_no_changes_have_no_weight(self, sink: Sink, folder: Path) -> None:
        schema = pa.schema(list(SCHEMA)[:-1])
        sink.open(replace(context(), schema=schema, changes=False))
        rows = [row[:3] for row in rows_of(0)]
        sink.commit(0, len(rows), "d", stage(sink, folder, 0, rows, schema))
        assert self.case.read(folder) == ordered(as_taken(sink, rows))

    def test_in_a_sink_that_was_never_written_nothing_is_wrong(self, sink: Sink, folder: Path) -> None:
        assert list(sink.verify()) == []
        assert not folder.exists()
        folder.mkdir()
        assert list(sink.verify()) == []
        assert _files_in(folder) == []

    def test_verify_finds_nothing_wrong_and_changes_nothing_beside_the_owner_or_without_one(
        self, sink: Sink, successor: Sink, folder: Path
    ) -> None:
        sink.open(context())
        for step in range(3):
            put(sink, folder, step)
            before = _contents_of(folder)
            assert list(successor.verify()) == list(sink.verify()) == []
            assert _contents_of(folder) == before
        sink.close()
        before = _contents_of(folder)
        assert list(successor.verify()) == []
        assert _contents_of(folder) == before
        assert successor.open(context(1)) == Committed(2, len(rows_of(2)), "digest 2"), "no owner was fenced"

    def test_verify_finds_each_damage(self, folder: Path) -> None:
        damages = self.case.damages()
        assert damages
        for what, (condition, damage) in damages.items():
            sink = self.case.make(folder)
            sink.open(context())
            for step in range(3):
                put(sink, folder, step)
            proves = sink.capabilities.untouched
            assert proves is None or proves(-1)
            sink.close()
            damage(folder)
            assert proves is None or not proves(-1), what
            before = _contents_of(folder)
            found = list(self.case.make(folder).verify())
            assert {finding.condition for finding in found} == {condition}, what
            assert all(self.case.name(folder) in finding.name for finding in found), "it says where"
            assert all(str(finding).startswith(f"{finding.name}: [{condition}] ") for finding in found)
            assert _contents_of(folder) == before
            self.case.remove(folder)

    def test_values_stay_what_they_are(self, sink: Sink, folder: Path) -> None:
        rows = [
            (-(2**63), "", -0.0, 1),
            (2**63 - 1, None, math.inf, 1),
            (2**53 + 1, "\0 ' \" é 🚲", -math.inf, 1),
            (0, "zero", None, 1),
            (None, "no key", 5e-324, 1),
        ]
        if self.case.lacks_infinity:
            rows = [row for row in rows if row[2] is None or math.isfinite(row[2])]
        sink.open(context())
        if self.case.refuses_nul:
            with pytest.raises(DataError, match=r"\[VALUE_REFUSED\].*name"):
                sink.commit(0, len(rows), "values", stage(sink, folder, 0, rows))
            assert self.case.read(folder) == []
            rows = [(key, text and text.replace("\0", ""), *others) for key, text, *others in rows]
        sink.commit(0, len(rows), "values", stage(sink, folder, 0, rows))
        read = {row[0]: row for row in self.case.read(folder)}
        rows = [*as_taken(sink, rows)]
        assert read == {row[0]: row[: len(read[0])] for row in rows}
        assert all(type(read[row[0]][2]) is type(row[2]) for row in rows)

    def test_nan_never_becomes_null(self, sink: Sink, folder: Path) -> None:
        sink.open(context())
        rows = [(1, "nan", math.nan, 1), (2, "null", None, 1)]
        if self.case.refuses_nan:
            with pytest.raises(DataError, match=r"\[NAN_REFUSED\].*value"):
                sink.commit(0, 2, "nan", stage(sink, folder, 0, rows))
            assert self.case.read(folder) == []
            assert put(sink, folder, 0) is Outcome.APPENDED
            return
        sink.commit(0, 2, "nan", stage(sink, folder, 0, rows))
        read = {row[0]: row[2] for row in self.case.read(folder)}
        assert str(read[1]).lower() == "nan"
        assert read[2] is None
