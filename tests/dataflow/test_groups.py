"""Which sinks can be shown together, and what becomes of a group whose sinks go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.dataflow.evolution import ProgramChange, compare
from boatlift.errors import InvalidError
from boatlift.runtime.graph import program_of, recorded_program
from boatlift.runtime.machine.build import sources_that_meet
from support.any_connector import ANY, SHARING
from support.engine.memory_engine import identity_in_memory, recorded


def made() -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.transform("clean", ANY).sink("all", SHARING)
    rows.group_by("k").agg("sums", ANY).sink("totals", SHARING)
    return flow


def elsewhere(place: str) -> SimpleNamespace:
    able = SimpleNamespace(**{**vars(SHARING.capabilities), "shares_transaction": SimpleNamespace(shared_place=place)})
    return SimpleNamespace(**{**vars(SHARING), "capabilities": able})


def test_a_group_has_its_sinks_in_order_of_their_names() -> None:
    flow = made()
    flow.together("totals", "all")
    assert plan(flow).groups == (("all", "totals"),)
    assert program_of(plan(flow)).groups == (("all", "totals"),)
    assert recorded_program(recorded(plan(flow))).groups == (("all", "totals"),), "the store's program has it"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("all", "nothing"), r"\[BAD_OPTION\] nothing is no sink: add sinks first, .* there are all, totals"),
        (("all", "rows"), r"\[BAD_OPTION\] rows is no sink"),
        (("all",), r"\[BAD_OPTION\] together\('all'\): name two or more different sinks"),
        (("all", "all"), r"\[BAD_OPTION\] together\('all', 'all'\): name two or more"),
    ],
)
def test_what_is_no_group_is_refused(names: tuple[str, ...], said: str) -> None:
    flow = made()
    with pytest.raises(InvalidError, match=said):
        flow.together(*names)
    assert plan(flow).groups == ()


def test_a_sink_is_in_one_group_alone_and_all_are_named_in_one_call() -> None:
    flow = made()
    flow.source("more", ANY).sink("more_rows", SHARING)
    flow.together("all", "totals")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] totals is shown together with others already"):
        flow.together("totals", "more_rows")
    flow.drop("totals")
    flow.together("all", "more_rows")
    assert flow.groups == (("all", "more_rows"),)


@pytest.mark.parametrize(
    "sink",
    [
        lambda folder: bl.parquet(folder / "out"),
        lambda folder: bl.delta(str(folder / "lake")),
        lambda _: bl.stdout(),
        lambda _: bl.foreach(print),
        lambda _: bl.kafka.sink("localhost:9092", "t", writers=2),
    ],
    ids=["parquet", "delta", "stdout", "deliver", "several writers of a topic"],
)
def test_sinks_without_a_common_transaction_are_refused_and_a_table_beside_them_is_not(
    tmp_path: Path, sink: Callable[[Path], bl.Sink]
) -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.sink("table", bl.sqlite(tmp_path / "out.db", table="t", key=["k"]))
    rows.sink("other", sink(tmp_path))
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] other \(\w+\) shares no transaction .*write the rows of"):
        flow.together("table", "other")
    rows.sink("copy", bl.sqlite(tmp_path / "out.db", table="u", key=["k"]))  # as the error advises
    flow.together("table", "copy")


def test_sinks_of_different_places_are_refused(tmp_path: Path) -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.sink("one", bl.sqlite(tmp_path / "one.db", table="t", key=["k"]))
    rows.sink("two", bl.sqlite(tmp_path / "two.db", table="t", key=["k"]))
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] one is in SQLite file .*/one.db, and two in .*two.db"):
        flow.together("one", "two")
    (tmp_path / "link").symlink_to(tmp_path)
    rows.sink("three", bl.sqlite(tmp_path / "link" / "one.db", table="u", key=["k"]))
    flow.together("one", "three")


def test_topics_go_together_whose_sinks_name_the_cluster_alike() -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.sink("one", bl.kafka.sink("a:9092, b:9092", "one", atomic="step"))
    rows.sink("two", bl.kafka.sink("B:9092,a:9092", "two"))
    rows.sink("three", bl.kafka.sink("a:9092", "three"))
    said = r"\[BAD_OPTION\] one is in Kafka cluster a:9092, b:9092, and three in Kafka cluster a:9092, which share no"
    with pytest.raises(InvalidError, match=said):
        flow.together("one", "three")
    flow.together("one", "two")
    assert flow.groups == (("one", "two"),)


def own_times() -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.sink("all", SHARING)
    rows.recompute("fit", ANY, over="batch", policy=bl.Batch(epochs=2)).sink("fits", SHARING)
    gathered = rows.gather("gathered", policy=bl.Batch(epochs=2))
    gathered.sink("packs", SHARING)
    read = gathered.transform("read", ANY)
    read.sink("unpacked", SHARING)
    read.transform("again", ANY).sink("unpacked_too", SHARING)
    merged = rows.merge("both", flow.source("others", ANY))
    merged.sink("merged", SHARING)
    merged.transform("behind", ANY).sink("later", SHARING)
    return flow


@pytest.mark.parametrize(
    ("pair", "theirs"),
    [
        (("all", "fits"), "fit"),
        (("all", "merged"), "both"),
        (("fits", "later"), "both"),
        (("packs", "unpacked"), "gathered"),
        (("all", "unpacked"), "gathered"),
    ],
)
def test_sinks_with_times_of_their_own_are_refused_beside_others(pair: tuple[str, str], theirs: str) -> None:
    flow = own_times()
    flow.together(*pair)
    with pytest.raises(InvalidError, match=rf"\[OTHER_TIMES\] .*{theirs}.*behind the same batch"):
        plan(flow)


@pytest.mark.parametrize("pair", [("later", "merged"), ("unpacked", "unpacked_too")])
def test_sinks_behind_one_batch_lookup_or_merge_go_together(pair: tuple[str, str]) -> None:
    flow = own_times()
    flow.together(*pair)
    assert plan(flow).groups == (pair,)


def test_sources_of_sinks_that_are_shown_together_have_common_steps() -> None:
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).sink("all", SHARING)
    flow.source("others", ANY).sink("beside", SHARING)
    apart = program_of(plan(flow))
    assert sources_that_meet(apart.graph, apart.groups) == []
    flow.together("all", "beside")
    joined = program_of(plan(flow))
    assert sources_that_meet(joined.graph, joined.groups) == [frozenset({"rows", "others"})]


def test_joining_and_leaving_is_a_change_of_the_program_that_concerns_no_row() -> None:
    apart, joined = made(), made()
    joined.together("all", "totals")
    before, after = identity_in_memory(plan(apart)), identity_in_memory(plan(joined))
    found = compare(before, after, {})
    assert found.is_changed
    assert {each.change for each in found.processors.values()} == {ProgramChange.UNCHANGED}
    assert found.processors["all"].differences == ("shown together with totals",)
    assert found.processors["totals"].mode is None
    assert compare(after, before, {}).processors["all"].differences == ("shown by itself",)
    assert not compare(after, after, {}).is_changed
