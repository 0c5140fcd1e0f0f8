"""The laws of sources, one test each: what `boatlift.dataflow.contracts.Source` promises.

A connector's tests name a `SourceCase` and inherit `SourceLaws`; see `connectors.cases`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import pytest
from pyspark import SparkContext
from pyspark.sql.types import StructType

from boatlift.dataflow.contracts import Delivery, Json, Source
from boatlift.dataflow.contracts.values import names_in, with_names, without_names
from boatlift.errors import DataError
from boatlift.tasks.parameters import JobParameters
from connectors.conformance import Row, ordered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SourceCase(Protocol):
    """A kind of source, as the suite uses it: rows have the columns `id` (long) and `text`."""

    endless: ClassVar[bool]
    """Whether the source has always more rows."""

    parameterized: ClassVar[bool] = True
    """Whether the parameters of a job can name the source's rows, if it has the capability."""

    parts: ClassVar[int] = 1
    """Among how many parts of the input, each with an order of its own, the rows of one `add` are divided."""

    @staticmethod
    def make(folder: Path) -> Source:
        """Make the source over a folder."""

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        """Add new rows, and return them; [] if the source computes its own."""

    @staticmethod
    def settle(folder: Path) -> None:
        """Make the input what the folder has now; the folder is the input, unless a case says otherwise."""

    @staticmethod
    def tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        """Ways to change what a position names: name to (expected condition, what to do)."""


def drain(source: Source, cursor: Json, limit: int = 1000) -> tuple[list[Json], Json]:
    """Poll until nothing is new; positions and cursors are kept as the log keeps them."""
    positions: list[Json] = []
    while len(positions) < limit and (position := source.next(cursor)) is not None:
        assert json.loads(json.dumps(position)) == position
        positions.append(position)
        cursor = recorded(source, source.advance(cursor, position))
    return positions, cursor


def recorded(source: Source, cursor: Json) -> Json:
    """A cursor as it comes back from the log: JSON, and names."""
    written = json.loads(json.dumps(without_names(cursor)))
    return with_names(source.start(), written, names_in(cursor) or ())


def rising(numbers: list[int]) -> int:
    """Return the number of rising sequences into which numbers must be divided, in their order."""
    lasts: list[int] = []
    for number in numbers:
        at = next((at for at, last in enumerate(lasts) if last < number), None)
        if at is None:
            lasts.append(number)
        else:
            lasts[at] = number
        lasts.sort(reverse=True)
    return len(lasts)


class SourceLaws:
    """What `Source` promises, law by law."""

    case: ClassVar[type[SourceCase]]

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "input"
        folder.mkdir()
        return folder

    @pytest.fixture
    def source(self, folder: Path) -> Source:
        return self.case.make(folder)

    def limit(self) -> int:
        return 4 if self.case.endless else 1000

    def several(self, source: Source, folder: Path) -> list[Json]:
        """Return several positions."""
        positions, cursor = [], source.start()
        for number in range(3):
            self.case.add(folder, number)
            more, cursor = drain(source, cursor, self.limit())
            positions += more
        assert len(positions) > 1
        return positions

    def test_describes_itself_the_same_each_time(self, source: Source, folder: Path) -> None:
        self.case.add(folder, 1)
        assert source.delivery in Delivery
        assert json.loads(json.dumps(source.describe())) == source.describe() == self.case.make(folder).describe()

    def test_nothing_there_is_no_step(self, source: Source) -> None:
        assert self.case.endless or source.next(source.start()) is None

    def test_next_and_advance_depend_on_the_cursor_alone(self, source: Source, folder: Path) -> None:
        for number in range(3):
            self.case.add(folder, number)
        positions, cursor = drain(source, source.start(), self.limit())
        again, same = drain(self.case.make(folder), self.case.make(folder).start(), self.limit())
        assert (again, same) == (positions, cursor)

    def test_a_copy_reads_the_same(self, source: Source, folder: Path) -> None:
        if source.capabilities.store_backed is not None:
            pytest.skip("a dataflow with pushed rows is not rehearsed")
        self.case.add(folder, 0)
        before = drain(source, source.start(), self.limit())
        copy = deepcopy(source)
        assert copy.describe() == source.describe()
        assert drain(copy, copy.start(), self.limit()) == before == drain(source, source.start(), self.limit())

    def test_an_earlier_cursor_leads_to_the_same_end_whatever_was_asked_before(
        self, source: Source, folder: Path
    ) -> None:
        """Law: what a source found out for one cursor hides nothing from another."""
        for number in range(3):
            self.case.add(folder, number)
        positions, end = drain(source, source.start(), self.limit())
        cursors = [source.start()]
        for position in positions:
            cursors.append(recorded(source, source.advance(cursors[-1], position)))
        for left in range(len(positions) + 1):
            assert self.case.endless or source.next(end) is None
            earlier = cursors[len(positions) - left]
            again, reached = drain(source, earlier, left if self.case.endless else 1000)
            assert (bool(again), reached) == (left > 0, end)

    def test_nothing_is_taken_twice_and_everything_in_the_end(self, source: Source, folder: Path) -> None:
        taken: list[str] = []
        cursor = source.start()
        for number in (5, 3, 9, 1, 7):  # later ones also sort before earlier ones
            self.case.add(folder, number)
            positions, cursor = drain(source, cursor, self.limit())
            assert positions
            taken += [json.dumps(position, sort_keys=True) for position in positions]
            assert self.case.endless or source.next(cursor) is None
        assert len(set(taken)) == len(taken)

    def test_weighs_a_position(self, source: Source, folder: Path) -> None:
        self.case.add(folder, 1)
        (position, *_), _ = drain(source, source.start(), self.limit())
        assert source.size_bytes(position) > 0

    def test_what_waits_is_what_no_position_has_taken(self, source: Source, folder: Path) -> None:
        waiting = source.capabilities.waiting
        if waiting is None:
            return
        self.case.add(folder, 1)
        assert waiting(source.start()).count > 0
        _, cursor = drain(source, source.start(), self.limit())
        assert waiting(cursor).count == 0
        self.case.add(folder, 2)
        assert waiting(cursor).count > 0
        _, cursor = drain(source, cursor, self.limit())
        assert waiting(cursor).count == 0

    def test_an_unchanged_position_is_proved_also_after_more_has_come(self, source: Source, folder: Path) -> None:
        self.case.add(folder, 1)
        positions, _ = drain(source, source.start(), self.limit())
        self.case.add(folder, 2)
        for position in positions:
            source.verify(position)
            self.case.make(folder).verify(json.loads(json.dumps(position)))
            source.acknowledge(position)

    def test_a_changed_position_is_found(self, source: Source, folder: Path, tmp_path: Path) -> None:
        self.case.add(folder, 1)
        (position, *_), _ = drain(source, source.start(), self.limit())
        for name, (condition, tamper) in self.case.tampers().items():
            copy = tmp_path / f"kept {name}"
            shutil.copytree(folder, copy)
            tamper(folder, position)
            with pytest.raises(DataError) as caught:
                source.verify(position)
            assert caught.value.condition == condition, name
            shutil.rmtree(folder)
            shutil.move(copy, folder)
            self.case.settle(folder)
            source.verify(position)

    def test_everything_changed_is_found(self, source: Source, folder: Path, tmp_path: Path) -> None:
        everything = source.capabilities.rescannable
        if everything is None:
            return
        self.case.add(folder, 1)
        positions, cursor = drain(source, source.start(), self.limit())
        self.case.add(folder, 2)
        everything.verify_everything(recorded(source, cursor))
        for name, (condition, tamper) in self.case.tampers().items():
            copy = tmp_path / f"kept all {name}"
            shutil.copytree(folder, copy)
            tamper(folder, positions[0])
            with pytest.raises(DataError) as caught:
                everything.verify_everything(cursor)
            assert caught.value.condition == condition, name
            shutil.rmtree(folder)
            shutil.move(copy, folder)
            self.case.settle(folder)
            everything.verify_everything(cursor)

    def test_a_failure_of_others_is_not_explained(self, source: Source, folder: Path) -> None:
        self.case.add(folder, 1)
        (position, *_), _ = drain(source, source.start(), self.limit())
        assert source.diagnose(position, "java.lang.OutOfMemoryError: Java heap space") is None

    @pytest.mark.spark
    def test_the_same_position_gives_the_same_rows(self, source: Source, folder: Path, spark: SparkSession) -> None:
        put_in = [*self.case.add(folder, 1), *self.case.add(folder, 2)]
        positions, _ = drain(source, source.start(), self.limit())
        first = [ordered(map(tuple, source.load(spark, position).collect())) for position in positions]
        self.case.add(folder, 3)
        self.case.add(folder, 0)
        other = self.case.make(folder)
        again = [ordered(map(tuple, other.load(spark, position).collect())) for position in positions]
        assert again == first
        assert all(first)
        if put_in:
            assert ordered(row[:2] for rows in first for row in rows) == ordered(put_in)

    @pytest.mark.spark
    def test_everything_is_the_rows_of_all_positions(self, source: Source, folder: Path, spark: SparkSession) -> None:
        everything = source.capabilities.rescannable
        if everything is None:
            return
        for number in range(3):
            self.case.add(folder, number)
        positions, cursor = drain(source, source.start(), self.limit())
        rows = [row for position in positions for row in source.load(spark, position).drop("_position").collect()]
        self.case.add(folder, 7)  # later than the cursor
        again = self.case.make(folder).capabilities.rescannable
        assert again is not None
        found = again.load_everything(spark, cursor).drop("_position").collect()
        assert ordered(map(tuple, found)) == ordered(map(tuple, rows))

    @pytest.mark.spark
    @pytest.mark.parametrize("most", [1, 2, 100])
    def test_a_past_that_is_divided_anew_has_its_rows_in_order(
        self, source: Source, folder: Path, spark: SparkSession, most: int
    ) -> None:
        """Divided as if all of it came today: as `next` divides it, if there is no bound on the steps."""
        if source.capabilities.divided_anew is None:
            return
        for number in range(3):
            self.case.add(folder, number)
        positions, cursor = drain(source, source.start(), self.limit())
        self.case.add(folder, 7)  # later than the cursor
        again = self.case.make(folder)
        divided_anew = again.capabilities.divided_anew
        assert divided_anew is not None
        divided = divided_anew(cursor, most)
        assert len(divided) == min(most, len(positions)) or most == 2
        assert len(divided) <= most
        rows = [again.load(spark, position).drop("_position").collect() for position in divided]
        before = [source.load(spark, position).drop("_position").collect() for position in positions]
        assert ordered(map(tuple, chain(*rows))) == ordered(map(tuple, chain(*before)))
        if most == 100:
            assert [ordered(map(tuple, each)) for each in rows] == [ordered(map(tuple, each)) for each in before]

    @pytest.mark.spark
    def test_one_cached_plan_reads_what_its_parameters_name(
        self, source: Source, folder: Path, spark: SparkSession, tmp_path: Path
    ) -> None:
        read, digests = source.capabilities.parameterized_read, source.capabilities.digests_on_read
        if read is None:
            return
        positions = self.several(source, folder)
        rows = read.load_parameterized(spark)
        assert rows.rdd.getNumPartitions() == 1
        for turn, position in enumerate([*positions, positions[0]]):
            noted = [str(tmp_path / f"{which} {turn}") for which in ("parameterized", "loaded")]
            expected = source.load(spark, position)
            if digests is not None:
                expected = digests.load_digested(spark, [position], noted[1:], ordinals=False)
            if (told := read.parameters_for(position, noted[0])) is None:
                assert not self.case.parameterized
                continue
            with JobParameters(0, 0, source=told).to_tasks(spark.sparkContext):
                found = ordered(map(tuple, rows.collect()))
            assert rows.schema == expected.schema, (rows.schema, expected.schema)
            assert found == ordered(map(tuple, expected.collect()))
            if digests is not None:
                assert digests.reading(noted[0]) == digests.reading(noted[1]) is not None

    @pytest.mark.spark
    def test_a_task_that_leaves_out_columns_has_the_rows_of_the_others(
        self, source: Source, folder: Path, spark: SparkSession, tmp_path: Path
    ) -> None:
        read, tasks = source.capabilities.parameterized_read, []
        if read is None:
            return
        read.load_parameterized(
            spark, lambda task, kinds: tasks.append((task, kinds)) or spark.createDataFrame([], kinds)
        )
        ((task, kinds),) = tasks
        (position, *_) = self.several(source, folder)
        if not hasattr(task, "narrowed") or (told := read.parameters_for(position, str(tmp_path))) is None:
            return
        with JobParameters(0, 0, source=told).to_tasks(spark.sparkContext):
            whole = spark.range(0, 1, 1, 1).mapInArrow(task, kinds)
            for names in (["text"], [each.name for each in kinds if each.name != "id"]):
                kept = StructType([each for each in kinds if each.name in names])
                narrow = spark.range(0, 1, 1, 1).mapInArrow(task.narrowed(names), kept).collect()
                assert narrow == whole.select(names).collect()
                assert narrow

    @pytest.mark.spark
    def test_the_schema_is_that_of_the_rows(self, source: Source, folder: Path, spark: SparkSession) -> None:
        self.case.add(folder, 1)
        (position, *_), _ = drain(source, source.start(), self.limit())
        rows = source.load(spark, position)
        assert rows.drop("_position").schema == source.schema(spark)
        assert ("_position" in rows.columns) == source.positioned

    @pytest.mark.spark
    def test_positions_of_rows_do_not_depend_on_splits(self, source: Source, folder: Path, spark: SparkSession) -> None:
        self.case.add(folder, 1)
        (position, *_), _ = drain(source, source.start(), self.limit())
        if "_position" not in source.load(spark, position).columns:
            return
        whole = ordered(map(tuple, source.load(spark, position).collect()))
        before = spark.conf.get("spark.sql.files.maxPartitionBytes")
        assert before is not None
        spark.conf.set("spark.sql.files.maxPartitionBytes", "64")
        try:
            split = ordered(map(tuple, source.load(spark, position).collect()))
        finally:
            spark.conf.set("spark.sql.files.maxPartitionBytes", before)
        assert split == whole
        assert len({row[-1] for row in whole}) == len(whole)

    @pytest.mark.spark
    def test_the_rows_of_a_part_keep_their_order(
        self, source: Source, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if source.capabilities.ordered_within is None:
            return
        added = [self.case.add(folder, number) for number in (1, 2, 3)]
        positions, _ = drain(source, source.start(), self.limit())
        before = spark.conf.get("spark.sql.files.maxPartitionBytes")
        assert before is not None
        for size, tasks in ((before, 1), ("64", 4)):
            spark.conf.set("spark.sql.files.maxPartitionBytes", size)
            monkeypatch.setattr(SparkContext, "defaultParallelism", property(lambda _self, tasks=tasks: tasks))
            try:
                loaded = [tuple(row)[:2] for position in positions for row in source.load(spark, position).collect()]
            finally:
                spark.conf.set("spark.sql.files.maxPartitionBytes", before)
            for rows in added:
                places = [rows.index(row) for row in loaded if row in rows]
                assert sorted(places) == list(range(len(rows)))
                assert rising(places) <= self.case.parts, f"{tasks} tasks"

    @pytest.mark.spark
    def test_positions_read_together_are_those_read_alone(
        self, source: Source, folder: Path, spark: SparkSession
    ) -> None:
        many = source.capabilities.reads_many_steps
        if many is None:
            return
        positions = self.several(source, folder)
        rows = many.load_together(spark, positions)
        for ordinal, position in enumerate(positions):
            alone = source.load(spark, position)
            mine = rows.where(f"_ordinal = {ordinal}").drop("_ordinal")
            assert mine.columns == alone.columns
            assert ordered(map(tuple, mine.collect())) == ordered(map(tuple, alone.collect()))
        assert rows.schema["_ordinal"].dataType.simpleString() == "int"
        assert rows.count() == sum(source.load(spark, position).count() for position in positions)
