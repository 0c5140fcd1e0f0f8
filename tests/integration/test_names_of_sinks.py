"""Names go from one sink to another, to other processors, and come back: no place gets the rows of another sink."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.connectors.kit import SinkWrapper
from boatlift.errors import DataError, InvalidError
from boatlift.runtime.host.points import change_points
from integration.test_from_copy import come, restore
from integration.test_rewind import back
from support.changes import Case, MortalSink, changes, evolve, run, table, write
from support.crash.mortality import Fate, KilledError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Places = Mapping[str, str]
"""Sink to its place; `sums` and `top` have different rows, so a place that changes hands would show it."""


def sqlite(place: str) -> Any:
    return bl.sqlite("answers.db", table=place, key=["k"])


@pytest.fixture(params=[sqlite, bl.parquet], ids=["sqlite", "parquet"])
def sink(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    made: Callable[[str], Any] = request.param
    return made


def flow_of(
    sink: Callable[[str], Any], places: Places, was: Places | None = None, *, view: str = "", of_view: str = ""
) -> bl.Dataflow:
    """Return a dataflow with sinks at places; those at `q` have the largest value of each key, others have the sum."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow", was=was)
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    sums = rows.group_by("k").agg("sums", F.sum("v").alias("v"))
    most = rows.group_by("k").agg("most", F.max("v").alias("v"))
    for name, place in places.items():
        (most if place == "q" else sums).sink(name, sink(place))
    if view:
        sums.transform(view, lambda df: df.where("v > 20")).sink(of_view, bl.parquet("viewed"))
    return flow


def held(sink: Callable[[str], Any], *places: str) -> list[Any]:
    if sink is sqlite:
        return [table("answers.db", place) for place in places]
    return [sorted((dict(row)["k"], dict(row)["v"]) for row in changes(place)) for place in places]


def due(case: Case, *whats: Callable[[list[int]], int]) -> list[Any]:
    """Return what the places must hold: of each key, the sum or the largest of its values in all files."""
    values: dict[int, list[int]] = {}
    for path in (case.here / "in").glob("*.csv"):
        for line in path.read_text().splitlines()[1:]:
            key, value = map(int, line.split(","))
            values.setdefault(key, []).append(value)
    return [sorted((key, what(each)) for key, each in values.items()) for what in whats]


def test_a_swap_of_names_is_refused_before_it_touches_a_place(
    case: Case, spark: SparkSession, sink: Callable[[str], Any]
) -> None:
    """A sink then comes back by a name that a transform has had meanwhile."""
    run(flow_of(sink, {"a": "p", "b": "q"}), spark)
    for was in (None, {"a": "b", "b": "a"}):
        with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*sink 'b'.*sink 'a'"):
            evolve(flow_of(sink, {"a": "q", "b": "p"}, was), spark)
    with_view = partial(flow_of, sink, view="a", of_view="c")
    evolve(with_view({"b": "q"}), spark)
    write(case.here, 6)
    run(with_view({"b": "q"}), spark)
    evolve(flow_of(sink, {"b": "q", "a": "p"}, {"kept": "a"}, view="kept", of_view="c"), spark)
    write(case.here, 7)
    run(flow_of(sink, {"b": "q", "a": "p"}, {"kept": "a"}, view="kept", of_view="c"), spark)
    assert held(sink, "p", "q") == due(case, sum, max)


def test_names_are_swapped_by_way_of_a_third_one(case: Case, spark: SparkSession, sink: Callable[[str], Any]) -> None:
    """Each place knows its sink by the first name all the time, also once that is another processor's."""
    run(flow_of(sink, {"a": "p", "b": "q"}), spark)
    evolve(flow_of(sink, {"c": "p", "b": "q"}, {"c": "a"}), spark)
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*sink 'a'.*was=\{'d': 'c'\}"):
        evolve(flow_of(sink, {"d": "p", "b": "q"}), spark)
    evolve(flow_of(sink, {"c": "p", "a": "q"}, {"a": "b"}), spark)
    evolve(flow_of(sink, {"b": "p", "a": "q"}, {"b": "c"}), spark)
    write(case.here, 6)
    run(flow_of(sink, {"b": "p", "a": "q"}), spark)
    assert held(sink, "p", "q") == due(case, sum, max)
    evolve(flow_of(sink, {"b": "p"}, view="a", of_view="d"), spark)
    write(case.here, 7)
    run(flow_of(sink, {"b": "p"}, view="a", of_view="d"), spark)
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] the place of b knows it as a: give the new sink another"):
        evolve(flow_of(sink, {"b": "p", "a": "r"}), spark)
    evolve(flow_of(sink, {"a": "p"}), spark)
    write(case.here, 8)
    run(flow_of(sink, {"a": "p"}), spark)
    evolve(flow_of(sink, {"a": "p", "b": "q"}), spark)
    assert held(sink, "p", "q") == due(case, sum, max)
    evolve(flow_of(sink, {"b": "q"}), spark)
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*sink 'a'.*of its own$"):
        evolve(flow_of(sink, {"c": "p", "b": "q"}), spark)  # a name that it had in between


@pytest.mark.parametrize("came", [{"a": "p"}, {"a": "r"}], ids=["there", "at another place"])
@pytest.mark.parametrize("name", ["x", "a"])
def test_there_is_no_way_back_to_before_a_sink_came_back_by_its_first_name(
    case: Case, spark: SparkSession, came: Places, name: str
) -> None:
    """The restore point has the sink by its second name, and numbers of the steps in its former place."""
    others, was = {"b": "q"}, {"x": "a"} if name == "x" else {"a": "x"}
    (place,) = came.values()
    run(flow_of(bl.parquet, {"a": "p", **others}), spark)
    evolve(flow_of(bl.parquet, {"x": "p", **others}, {"x": "a"}), spark)
    list(change_points(Path("store"), "before"))
    evolve(flow_of(bl.parquet, others), spark)
    write(case.here, 6)
    evolve(flow_of(bl.parquet, {**came, **others}), spark)
    with pytest.raises(InvalidError, match=r"\[NO_RESTORE_POINT\]"):
        back(flow_of(bl.parquet, {name: place, **others}, was), spark)
    write(case.here, 7)
    run(flow_of(bl.parquet, {**came, **others}), spark)
    assert held(bl.parquet, place, "q") == due(case, sum, max)


class Told:
    """A receiver without a ledger, which goes by the numbers of steps: each must have one batch of rows for ever."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def flow(self, *sinks: str, was: Places | None = None, fate: Fate | None = None) -> bl.Dataflow:
        path = self._path

        def note(rows: Any, step: int) -> None:
            with path.open("a") as file:
                file.write(f"{step} {sorted(rows.column('v').to_pylist())}\n")

        flow = bl.Dataflow("flow", was=was)
        rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
        rows.sink("copy", bl.parquet("copy"))
        for name in sinks:
            rows.sink(name, MortalSink(bl.foreach(note), fate) if fate else bl.foreach(note))
        return flow

    def check(self) -> None:
        lines = set(self._path.read_text().splitlines())
        assert len(lines) == len({line.partition(" ")[0] for line in lines}), sorted(lines)
        assert any("300" in line for line in lines), "it was told of what came last"


def instead(case: Case, *numbers: int) -> None:
    """Let other rows come than those that the dataflow took in the past that is undone."""
    for number in numbers:
        (case.here / "in" / f"{number:03}.csv").unlink()
        write(case.here, number + 10)


def test_numbers_go_on_for_a_receiver_that_comes_back_by_its_first_name(case: Case, spark: SparkSession) -> None:
    told = Told(case.here / "told")
    run(told.flow("a"), spark)
    list(change_points(Path("store"), "before"))
    write(case.here, 20)
    evolve(told.flow("x", was={"x": "a"}), spark)
    write(case.here, 21)
    run(told.flow("x", was={"x": "a"}), spark)
    back(told.flow(), spark)
    instead(case, 20, 21)
    evolve(told.flow("a"), spark, a="now")
    told.check()


def test_the_number_of_a_step_under_way_is_not_that_of_another_past(case: Case, spark: SparkSession) -> None:
    """A receiver has got a step that is not recorded, and is absent while the dataflow goes back."""
    told = Told(case.here / "told")
    run(told.flow("a"), spark)
    list(change_points(Path("store"), "before"))
    write(case.here, 20)
    with pytest.raises(KilledError):
        run(told.flow("a", fate=Fate(2, after=True)), spark)  # it is opened, and gets a step
    back(told.flow(), spark)
    instead(case, 20)
    evolve(told.flow("a"), spark, a="now")
    told.check()


def test_numbers_go_on_for_a_receiver_that_a_copy_does_not_know(case: Case, spark: SparkSession) -> None:
    told = Told(case.here / "told")
    run(told.flow(), spark)
    shutil.copytree("store", "copy of store")
    write(case.here, 20)
    evolve(told.flow("a"), spark, a="now")
    restore()
    come(told.flow(), spark)
    instead(case, 20)
    evolve(told.flow("a"), spark, a="now")
    told.check()


class Copying(SinkWrapper):
    """A sink before whose first step the store is copied."""

    def commit(self, *step: Any) -> Any:
        if not Path("copy of store").exists():
            shutil.copytree("store", "copy of store")
        return self.sink.commit(*step)


def test_a_sink_of_which_a_copy_knows_no_step_comes_back_before_any_step(case: Case, spark: SparkSession) -> None:
    """No sink knows a token as large as the copy's next claim, and the copy is known for one all the same."""
    run(flow_of(lambda place: Copying(bl.parquet(place)), {"a": "p", "b": "q"}), spark)
    restore()
    come(flow_of(bl.parquet, {"b": "q"}), spark, "beginning")
    evolve(flow_of(bl.parquet, {"a": "p", "b": "q"}), spark)
    assert held(bl.parquet, "p", "q") == due(case, sum, max)
