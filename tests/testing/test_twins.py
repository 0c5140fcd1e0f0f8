"""Sinks have twins elsewhere, sources have bounds, and what has neither is refused by its name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.connectors.generator import TicksSource
from boatlift.dataflow import Plan, plan
from boatlift.dataflow.contracts import Delivery
from boatlift.errors import InvalidError
from boatlift.testing.twins import bounds_of, twinned

COUNT = {"n": "id"}


@contextmanager
def refuses(condition: str, *words: str) -> Iterator[None]:
    with pytest.raises(InvalidError) as caught:
        yield
    assert caught.value.condition == condition
    assert all(each in caught.value.message for each in words), caught.value.message


def flow_of(source: Any, **sinks: Any) -> Plan:
    flow = bl.Dataflow("mine")
    rows = flow.source("rows", source)
    for name, sink in (sinks or {"kept": bl.parquet("kept")}).items():
        rows.sink(name, sink)
    return plan(flow)


def positions(planned: Plan, bounds: dict[str, Any]) -> list[Any]:
    spec = planned.sources["rows"].source.capabilities.bounded
    assert spec is not None
    source = spec.within(bounds["rows"])
    cursor, found = source.start(), []
    while (position := source.next(cursor)) is not None:
        found.append(position)
        cursor = source.advance(cursor, position)
    return found


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / "data" / f"{number}.csv").write_text(f"n\n{number}\n")
    return tmp_path


def source_of_files(**options: Any) -> Any:
    return bl.files("data/*.csv", schema="n INT", max_files_per_step=1, **options)


def names_of(found: list[Any]) -> list[str]:
    return [file["path"] for position in found for file in position["files"]]


def test_a_generator_without_end_needs_steps(tmp_path: Path) -> None:
    endless = flow_of(bl.generator(COUNT, rows_per_step=10))
    with refuses("NO_TWIN", "source rows has no end: give --steps"):
        bounds_of(endless, tmp_path / "a", None, {})
    bounds = bounds_of(endless, tmp_path / "b", 2, {})
    assert positions(endless, bounds) == [{"start": 0, "end": 10}, {"start": 10, "end": 20}]


def test_a_generator_ends_where_it_ends(tmp_path: Path) -> None:
    ending = flow_of(bl.generator(COUNT, rows_per_step=10, steps=1))
    assert len(positions(ending, bounds_of(ending, tmp_path / "a", 5, {}))) == 1
    with refuses("NO_TWIN", "reads no folder: leave --input out"):
        bounds_of(ending, tmp_path / "b", None, {"rows": tmp_path})


def test_files_are_those_that_are_there_at_the_start(files: Path) -> None:
    planned = flow_of(source_of_files())
    bounds = bounds_of(planned, files / "input", None, {})
    (files / "data" / "9.csv").write_text("n\n9\n")
    assert names_of(positions(planned, bounds)) == ["0.csv", "1.csv", "2.csv"]
    assert all((files / "input" / "rows" / f"{number}.csv").is_symlink() for number in range(3))


def test_steps_bound_files_too(files: Path) -> None:
    planned = flow_of(source_of_files())
    assert names_of(positions(planned, bounds_of(planned, files / "input", 2, {}))) == ["0.csv", "1.csv"]


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9])
def test_steps_bound_a_file_that_is_taken_in_ranges(files: Path, steps: int) -> None:
    (files / "data" / "0.csv").write_text("n\n" + "1\n" * 10)
    planned = flow_of(bl.files("data/*.csv", schema="n INT", max_files_per_step=1, max_bytes_per_step=6))
    everything = positions(planned, bounds_of(planned, files / "all", None, {}))
    assert len(everything) == 6, "four ranges, and two files"
    bounds = bounds_of(planned, files / "input", steps, {})
    assert positions(planned, json.loads(json.dumps(bounds))) == everything[:steps]


@pytest.mark.parametrize("tail", [True, "1 second"])
def test_steps_bound_a_file_that_grows(files: Path, tail: bool | str) -> None:
    os.utime(files / "data" / "1.csv", (0, 0))
    (files / "data" / "0.csv").write_text("n\n" + "1\n" * 10)
    os.utime(files / "data" / "0.csv", (0, 0))
    planned = flow_of(source_of_files(tail=tail, max_bytes_per_step=6))
    everything = positions(planned, bounds_of(planned, files / "all", None, {}))
    for steps in range(1, len(everything)):
        found = positions(planned, bounds_of(planned, files / f"input{steps}", steps, {}))
        taken, expected = (
            [(file["path"], file["begin"], file["end"]) for position in each for file in position["files"]]
            for each in (found, everything[:steps])
        )
        assert taken == expected


def test_files_of_another_folder_are_read_in_their_place(files: Path) -> None:
    (files / "some").mkdir()
    (files / "some" / "small.csv").write_text("n\n7\n")
    planned = flow_of(source_of_files())
    for number, given in enumerate(({"": files / "some"}, {"rows": files / "some"})):
        bounds = bounds_of(planned, files / f"input{number}", None, given)
        assert names_of(positions(planned, bounds)) == ["small.csv"]


def test_growing_files_are_copied(files: Path) -> None:
    planned = flow_of(source_of_files(tail=True))
    bounds = bounds_of(planned, files / "input", None, {})
    with (files / "data" / "0.csv").open("a") as file:
        file.write("8\n")
    assert sum(each["end"] - each["begin"] for p in positions(planned, bounds) for each in p["files"]) == 6


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"": "nowhere"}, "is given {}/nowhere, which is no folder: correct the path"),
        ({"": "empty"}, "finds no file in {}/empty: put some there, or name another folder"),
    ],
)
def test_a_folder_without_files_is_refused(files: Path, given: dict[str, str], says: str) -> None:
    (files / "empty").mkdir()
    folders = {name: files / folder for name, folder in given.items()}
    with refuses("NO_TWIN", f"source rows {says.format(files)}"):
        bounds_of(flow_of(source_of_files()), files / "input", None, folders)


def test_a_folder_is_for_a_source_that_there_is(files: Path) -> None:
    with refuses("BAD_OPTION", "names no source: choose one of rows"):
        bounds_of(flow_of(source_of_files()), files / "input", None, {"others": files})
    flow = bl.Dataflow("two")
    for name in ("one", "two"):
        flow.source(name, source_of_files()).sink(f"kept-{name}", bl.parquet(name))
    with refuses("BAD_OPTION", "is for one of one, two: write --input NAME=FOLDER"):
        bounds_of(plan(flow), files / "input", None, {"": files})


def test_pushes_are_read_from_recorded_rows(files: Path) -> None:
    (files / "pushed").mkdir()
    (files / "pushed" / "rows.jsonl").write_text('{"n": 1}\n')
    planned = flow_of(bl.push("n INT"))
    with refuses("NO_TWIN", "source rows takes pushes", "--input SOURCE=FOLDER"):
        bounds_of(planned, files / "a", None, {})
    bounds = bounds_of(planned, files / "b", None, {"rows": files / "pushed"})
    assert names_of(positions(planned, bounds)) == ["rows.jsonl"]
    with refuses("NO_TWIN", "source rows_source takes rows that replace one another"):
        bounds_of(
            flow_of(bl.push("n INT NOT NULL", upsert=["n"])), files / "c", None, {"rows_source": files / "pushed"}
        )


def test_objects_of_a_bucket_are_read_from_a_folder(files: Path) -> None:
    planned = flow_of(bl.files("s3://bucket/data/*.csv", schema="n INT", max_files_per_step=1))
    with refuses("NO_TWIN", "source rows reads s3://bucket/data", "give --input SOURCE=FOLDER"):
        bounds_of(planned, files / "a", None, {})
    bounds = bounds_of(planned, files / "b", None, {"rows": files / "data"})
    assert names_of(positions(planned, bounds)) == ["0.csv", "1.csv", "2.csv"]


def test_ticks_of_the_clock_are_refused(files: Path) -> None:
    flow = bl.Dataflow("mine")
    flow.source("ticks_of_mine", TicksSource(1000)).sink("kept", bl.parquet("kept"))
    with refuses("NO_TWIN", "source ticks_of_mine follows the clock"):
        bounds_of(plan(flow), files / "a", None, {})


def test_sinks_without_a_twin_are_refused_by_name(files: Path) -> None:
    sinks = {"kept": bl.parquet("kept"), "topic": bl.kafka.sink("localhost:9", topic="t", key="n")}
    planned = flow_of(bl.generator(COUNT, rows_per_step=1, steps=1), **sinks)
    bounds = bounds_of(planned, files / "input", None, {})
    with refuses("NO_TWIN", "sink topic (kafka) has no twin", "--in-parquet topic"):
        twinned(planned, files / "sinks", bounds, ())
    found, twins = twinned(planned, files / "sinks", bounds, ["topic"])
    assert {name: twin.sink.describe()["kind"] for name, twin in twins.items()} == {
        "kept": "parquet",
        "topic": "parquet",
    }
    assert found.sinks["topic"].sink is found.unit_of_sink("topic").sinks[1].sink is twins["topic"].sink
    with refuses("BAD_OPTION", "--in-parquet other names no sink: choose one of kept, topic"):
        twinned(planned, files / "sinks", bounds, ["other"])


def test_twins_are_of_the_same_kind_below_the_folder(files: Path) -> None:
    sinks = {
        "folder": bl.parquet("out", key=["n"]),
        "table": bl.sqlite("a.db", table="t", key=["n"]),
        "other": bl.sqlite("a.db", table="u", key=["n"]),
        "lake": bl.delta("lake"),
        "called": bl.foreach(lambda _rows, _step: os._exit(1)),
        "posted": bl.http_post("http://localhost:9/"),
        "shown": bl.stdout(),
    }
    planned = flow_of(bl.generator(COUNT, rows_per_step=1, steps=1), **sinks)
    bounds = bounds_of(planned, files / "input", None, {})
    _, twins = twinned(planned, files / "sinks", bounds, ())
    before = {name: spec.sink for name, spec in planned.sinks.items()}
    assert {name: twin.sink.describe()["kind"] for name, twin in twins.items()} == {
        name: sink.describe()["kind"] for name, sink in before.items()
    }
    for name, twin in twins.items():
        assert (twin.sink.key, twin.sink.delivery) == (before[name].key, before[name].delivery)
        if twin.sink.delivery is Delivery.EXACTLY_ONCE:
            assert str(files / "sinks") in str(twin.sink.describe()["path"])
        if "table" not in twin.sink.describe():  # which SQLite has once it is opened
            assert list(twin.held()) == []
    shared = [twins[name].sink.capabilities.shares_transaction for name in ("table", "other")]
    assert len({each and each.shared_place for each in shared}) == 1


@pytest.mark.parametrize(
    ("in_parquet", "groups"),
    [((), (("a", "b", "c"),)), (("a",), (("b", "c"),)), (("a", "c"), ()), (("other",), (("a", "b", "c"),))],
)
def test_what_is_left_of_a_group_is_shown_together(
    files: Path, in_parquet: tuple[str, ...], groups: tuple[tuple[str, ...], ...]
) -> None:
    flow = bl.Dataflow("mine")
    rows = flow.source("rows", bl.generator(COUNT, rows_per_step=1, steps=1))
    for name in ("a", "b", "c"):
        rows.sink(name, bl.sqlite("one.db", table=name, key=["n"]))
    rows.sink("other", bl.parquet("other"))
    flow.together("a", "b", "c")
    planned = plan(flow)
    found, _ = twinned(planned, files / "sinks", bounds_of(planned, files / "input", None, {}), in_parquet)
    assert found.groups == groups
