"""Dividing a dataflow into units, and what is refused."""

from typing import Any

import pytest

import boatlift as bl
from boatlift.api.dataflow import Dataflow
from boatlift.dataflow import RowKind, Timing, Unit, plan
from boatlift.dataflow.processors import describe_policy
from support.any_connector import ANY


def same(df: Any) -> Any:
    return df


def names(unit: Unit) -> list[str]:
    return [operator.name for operator in unit.operators]


def test_a_chain_of_transforms_is_fused_into_the_job_of_the_aggregate() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    counts = rows.transform("a", same).transform("b", same).group_by("k").agg("counts", ANY)
    counts.sink("out", ANY)
    planned = plan(flow)
    assert list(planned.units) == ["counts"]
    unit = planned.units["counts"]
    assert unit.reads == ("rows",)
    assert names(unit) == ["a", "b", "counts"]
    assert [s.name for s in unit.sinks] == ["out"]
    assert not unit.materialised
    assert planned.rows["counts"].kind is RowKind.CHANGES
    assert planned.rows["b"].kind is RowKind.APPEND


def test_a_transform_with_two_readers_is_materialised_once() -> None:
    flow = Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", same)
    clean.group_by("k").agg("one", ANY).sink("out1", ANY)
    clean.group_by("j").agg("two", ANY).sink("out2", ANY)
    units = plan(flow).units
    assert units["clean"].materialised
    assert units["one"].reads == units["two"].reads == ("clean",)
    assert names(units["one"]) == ["one"]


def test_a_source_with_two_readers_is_read_by_each() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.group_by("k").agg("one", ANY).sink("out1", ANY)
    rows.transform("t", same).sink("out2", ANY)
    units = plan(flow).units
    assert {u.reads for u in units.values()} == {("rows",)}
    assert not any(u.materialised for u in units.values())


def test_sinks_are_staged_in_the_job_that_makes_their_rows() -> None:
    flow = Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", same)
    clean.sink("one", ANY)
    clean.sink("two", ANY)
    units = plan(flow).units
    assert [s.name for s in units["clean"].sinks] == ["one", "two"]
    assert not units["clean"].materialised


def test_changes_flow_on_through_transforms_and_into_aggregates() -> None:
    flow = Dataflow("flow")
    counts = flow.source("rows", ANY).group_by("k").agg("counts", ANY)
    big = counts.transform("big", same)
    big.sink("out", ANY)
    planned = plan(flow)
    assert planned.units["big"].reads == ("counts",)
    assert planned.rows["counts"].kind is planned.rows["big"].kind is RowKind.CHANGES
    assert (planned.rows["counts"].unique, planned.rows["big"].unique) == (("k",), None)
    big.group_by("g").agg("again", ANY).sink("groups", ANY)
    planned = plan(flow)
    assert planned.units["again"].reads == ("big",)
    assert planned.rows["again"].kind is RowKind.CHANGES
    assert planned.rows["again"].unique == ("g",)


def test_an_aggregate_without_keys_has_one_row_that_holds() -> None:
    flow = Dataflow("flow")
    flow.source("rows", ANY).agg("total", ANY).sink("out", ANY)
    planned = plan(flow)
    assert planned.rows["total"].unique == ()
    assert planned.units["total"].keeps_state


def test_a_reduction_gives_new_rows_and_keeps_no_state() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    reduced = rows.transform("clean", same).group_by("k").reduce("sums", ANY)
    reduced.group_by("k").agg("total", ANY).sink("out", ANY)
    planned = plan(flow)
    assert [each.name for each in planned.units["sums"].operators] == ["clean", "sums"]
    assert not planned.units["sums"].keeps_state
    assert planned.rows["sums"].kind is RowKind.APPEND
    assert planned.units["total"].reads == ("sums",)
    planned_rows = rows.group_by("k").agg("counts", ANY)
    planned_rows.group_by("k").reduce("again", ANY).sink("no", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_REDUCTION\] again reads counts"):
        plan(flow)


def test_aggregates_and_reductions_are_reported_what_they_lack() -> None:
    rows = Dataflow("flow").source("rows", ANY)
    for make in (rows.agg, rows.group_by("k").agg, rows.group_by("k").reduce):
        with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] sums: (agg|reduce) needs at least one aggregate"):
            make("sums")
    policies: Any = (bl.Ephemeral(), bl.Batch(epochs=2))
    for policy in policies:
        with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\]"):
            rows.agg("sums", ANY, policy=policy)
    policies = (bl.Lazy(), bl.History(bl.Batch(epochs=2)))
    for policy in policies:
        with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\]"):
            rows.group_by("k").reduce("sums", ANY, policy=policy)


def test_a_dataflow_without_source_or_sink_or_with_a_dead_end_is_refused() -> None:
    flow = Dataflow("flow")
    with pytest.raises(bl.InvalidError, match=r"\[EMPTY_DATAFLOW\] flow has no source"):
        plan(flow)
    rows = flow.source("rows", ANY)
    with pytest.raises(bl.InvalidError, match="has no sink"):
        plan(flow)
    rows.sink("out", ANY)
    rows.transform("dead", same)
    with pytest.raises(bl.InvalidError, match="nothing reads dead"):
        plan(flow)


def test_names_and_options_are_checked() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[DUPLICATE_NAME\]"):
        flow.source("rows", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_NAME\]"):
        rows.transform("a/b", same)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        rows.group_by()
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        bl.Lazy(every=0)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\]"):
        rows.group_by("k").agg("counts", ANY, policy=bl.Ephemeral())  # type: ignore[arg-type]
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] t: deterministic is 0"):
        rows.transform("t", same, deterministic=0)  # type: ignore[arg-type]
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] t is not deterministic"):
        rows.transform("t", same, deterministic=False, policy=bl.Ephemeral())
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] t is not deterministic"):
        rows.transform("t", same, deterministic=False, policy=bl.History())


def test_a_history_of_what_keeps_no_state_is_what_other_jobs_send_it() -> None:
    flow = Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", same)
    told = clean.transform("told", same, policy=bl.History()).transform("more", same)
    told.group_by("k").agg("counts", ANY, policy=bl.History()).sink("out", ANY)
    units = plan(flow).units
    assert {name: unit.reads for name, unit in units.items()} == {
        "clean": ("rows",), "told": ("clean",), "counts": ("told",)
    }  # fmt: skip
    assert names(units["counts"]) == ["more", "counts"], "what keeps state takes its inputs as before"
    flow = Dataflow("flow")
    flow.source("rows", ANY).transform("told", same, policy=bl.History()).sink("out", ANY)
    assert plan(flow).units["told"].reads == ("rows",)


def test_a_history_of_a_batch_has_the_end_of_its_epochs() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY).transform("clean", same)
    kept: Any = bl.History(bl.Batch(seconds=60))
    rows.gather("minutes", policy=kept).sink("out", ANY)
    assert plan(flow).units["minutes"].reads == ("clean",)
    assert describe_policy(kept) == "History(Batch(epochs=None, seconds=60))"
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] more gathers until an epoch is over: say when"):
        rows.gather("more", policy=bl.History())
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] fit may give another table when it is computed again"):
        rows.recompute("fit", same, over="batch", policy=kept)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] fit: deterministic is 1"):
        rows.recompute("fit", same, deterministic=1)  # type: ignore[arg-type]
    for make in (rows.transform, rows.lateness):
        with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] more has no epochs that could end"):
            make("more", *((same,) if make == rows.transform else ("at", "1 minute")), policy=kept)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] History\(60\): give it nothing, or for a batch"):
        bl.History(60)  # type: ignore[arg-type]


def test_a_lookup_is_done_in_one_job_with_the_cheap_transforms_around_it() -> None:
    flow = Dataflow("flow")
    live = flow.source("rows", ANY).group_by("k").agg("live", ANY)
    asked = flow.source("queries", ANY).transform("before", same).lookup("asked", live=live.by("k"))
    told = asked.transform("after", same)
    told.sink("out", ANY)
    told.group_by("k").agg("stats", ANY).sink("counts", ANY)
    unit = plan(flow).units["after"]
    assert names(unit) == ["before", "asked", "after"]
    assert unit.keeper is not None
    assert unit.keeper.name == "asked"
    assert unit.reads == ("queries", "live")
    assert unit.policy == bl.Lazy(every=20, seconds=60)
    assert plan(flow).units["stats"].reads == ("after",)
    assert plan(flow).units["live"].materialised


def test_what_goes_on_to_keyed_state_or_is_eager_is_no_part_of_the_lookup() -> None:
    flow = Dataflow("flow")
    live = flow.source("rows", ANY).group_by("k").agg("live", ANY)
    asked = flow.source("queries", ANY).lookup("asked", live=live.by("k"))
    asked.group_by("k").agg("stats", ANY).sink("counts", ANY)
    told = asked.transform("told", same, policy=bl.Eager())
    told.sink("out", ANY)
    units = plan(flow).units
    assert units["asked"].materialised
    assert units["stats"].reads == units["told"].reads == ("asked",)
    assert not units["told"].keeps_state
    assert units["told"].policy == bl.Eager()


@pytest.mark.parametrize("with_sink", [False, True])
def test_a_lookup_that_several_take_from_is_done_once(with_sink: bool) -> None:
    flow = Dataflow("flow")
    live = flow.source("rows", ANY).group_by("k").agg("live", ANY)
    asked = flow.source("queries", ANY).lookup("asked", live=live.by("k"))
    if with_sink:
        asked.sink("all", ANY)
    else:
        asked.transform("other", same).sink("others", ANY)
    asked.transform("told", same).transform("more", same).sink("out", ANY)
    units = plan(flow).units
    assert [name for name, unit in units.items() if unit.keeps_state and unit.timing is Timing.ARRIVAL] == ["asked"]
    assert units["more"].reads == ("asked",)
    assert names(units["more"]) == ["told", "more"]


def test_what_is_recomputed_from_everything_reads_its_source_for_itself() -> None:
    flow = Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", same)
    clean.group_by("k").agg("live", ANY).sink("out", ANY)
    clean.recompute("fit", same).sink("fits", ANY)
    planned = plan(flow)
    assert list(planned.units) == ["live", "fit"], "clean is not materialised for it"
    assert planned.units["fit"].reads == planned.units["live"].reads == ("rows",)
    assert names(planned.units["fit"]) == ["clean", "fit"]
    assert planned.read_whole("rows")


def test_what_is_recomputed_from_a_batch_is_a_reader_like_others() -> None:
    flow = Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", same)
    clean.group_by("k").agg("live", ANY).sink("out", ANY)
    clean.recompute("fit", same, over="batch", policy=bl.Batch(epochs=3)).sink("fits", ANY)
    planned = plan(flow)
    assert planned.units["clean"].materialised
    assert planned.units["fit"].reads == ("clean",)
    assert not planned.read_whole("rows")


def test_what_cannot_be_looked_up_is_refused() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    queries = flow.source("queries", ANY)
    live = rows.group_by("k").agg("live", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] asked: give live as in live=stream\.by"):
        queries.lookup("asked", live=live)  # type: ignore[arg-type]
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] asked reads queries: give it tables"):
        queries.lookup("asked")
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] asked keeps tables, which Ephemeral cannot"):
        queries.lookup("asked", live=live.by("k"), policy=bl.Ephemeral())  # type: ignore[arg-type]
    asked = queries.lookup("asked", live=live.by("k"))
    asked.sink("out", ANY)
    plan(flow)
    live.lookup("over", fit=rows.group_by("j").agg("fit", ANY).by("j")).sink("out2", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_LOOKUP\] over looks up for live, whose rows are not all new"):
        plan(flow)


def test_new_rows_are_no_tables_but_what_is_behind_a_lookup_is_looked_up_for() -> None:
    flow = Dataflow("flow")
    rows, queries = flow.source("rows", ANY), flow.source("queries", ANY)
    queries.lookup("asked", rows=rows.transform("clean", same).by("k")).sink("out", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_LOOKUP\] asked looks up clean, .*: aggregate it by k"):
        plan(flow)
    flow = Dataflow("flow")
    rows, queries = flow.source("rows", ANY), flow.source("queries", ANY)
    asked = queries.lookup("asked", live=rows.group_by("k").agg("live", ANY).by("k"))
    asked.lookup("again", live=rows.group_by("j").agg("live2", ANY).by("j")).sink("out", ANY)
    assert plan(flow).units["again"].reads == ("asked", "live2")


def test_a_table_is_looked_up_by_all_columns_of_its_key() -> None:
    flow = Dataflow("flow")
    live = flow.source("rows", ANY).group_by("k", "j").agg("live", ANY)
    flow.source("queries", ANY).lookup("asked", live=live.by("k")).sink("out", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_LOOKUP\] asked looks up live by k, which has rows for each k, j"):
        plan(flow)


def test_what_cannot_be_recomputed_is_refused() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] fit: over is 'all'"):
        rows.recompute("fit", same, over="all")  # type: ignore[arg-type]
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] fit computes by epochs, which Lazy has not"):
        rows.recompute("fit", same, policy=bl.Lazy())  # type: ignore[arg-type]
    rows.group_by("k").agg("live", ANY).recompute("fit", same).sink("out", ANY)
    with pytest.raises(
        bl.InvalidError, match=r"\[BAD_RECOMPUTATION\] fit is recomputed from everything that live gave"
    ):
        plan(flow)
    flow = Dataflow("flow")
    live = flow.source("rows", ANY).group_by("k").agg("live", ANY)
    live.gather("minutes", policy=bl.Batch(seconds=60)).sink("out", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_RECOMPUTATION\] minutes reads live, which emits changes"):
        plan(flow)
    flow = Dataflow("flow")
    flow.source("rows", ANY).recompute("fit", same).transform("more", same).sink("out", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_RECOMPUTATION\] more reads fit, which gives a whole table"):
        plan(flow)


def test_what_cannot_be_repeated_is_a_unit_of_its_own_with_what_is_before_it() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY).transform("before", same)
    asked = rows.transform("asked", same, deterministic=False).transform("behind", same)
    asked.group_by("k").agg("counts", ANY).sink("out", ANY)
    units = plan(flow).units
    assert list(units) == ["asked", "counts"]
    assert names(units["asked"]) == ["before", "asked"]
    assert units["asked"].materialised
    assert (units["asked"].deterministic, units["counts"].deterministic) == (False, True)


def test_what_is_taken_as_it_comes_is_not_of_one_unit_with_what_cannot_be_repeated() -> None:
    flow, a, b = two_streams()
    both = a.merge("both", b).transform("plain", same)
    both.transform("asked", same, deterministic=False).sink("out", ANY)
    live = flow.source("live", ANY).group_by("k").agg("counts", ANY)
    found = flow.source("queries", ANY).lookup("found", live=live.by("k"))
    found.transform("called", same, deterministic=False).sink("answers", ANY)
    units = plan(flow).units
    assert list(units) == ["clean", "plain", "asked", "counts", "found", "called"]
    assert [name for name, unit in units.items() if not unit.deterministic] == ["asked", "called"]
    own = {name: unit.timing for name, unit in units.items() if unit.timing is not Timing.EPOCHS}
    assert own == {"plain": Timing.GATHERED, "found": Timing.ARRIVAL}


def test_what_cannot_be_repeated_takes_no_changes_and_is_not_recomputed() -> None:
    flow = Dataflow("flow")
    counts = flow.source("rows", ANY).group_by("k").agg("counts", ANY)
    counts.transform("asked", same, deterministic=False).sink("out", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[NOT_DETERMINISTIC\] asked.*changes of rows from counts"):
        plan(flow)
    flow = Dataflow("flow")
    flow.source("rows", ANY).transform("asked", same, deterministic=False).recompute("fit", same).sink("out", ANY)
    with pytest.raises(
        bl.InvalidError, match=r"\[BAD_RECOMPUTATION\] fit is recomputed from everything that asked gave"
    ):
        plan(flow)


def two_streams() -> tuple[Dataflow, Any, Any]:
    flow = Dataflow("flow")
    return flow, flow.source("a", ANY).transform("clean", same), flow.source("b", ANY)


def test_a_union_goes_on_in_the_job_of_the_aggregate_that_follows_and_what_is_before_it_has_a_job_of_its_own() -> None:
    flow, a, b = two_streams()
    a.union("both", b).transform("more", same).group_by("k").agg("counts", ANY).sink("out", ANY)
    units = plan(flow).units
    assert list(units) == ["clean", "counts"]
    assert units["clean"].materialised
    assert units["counts"].reads == ("clean", "b")
    assert names(units["counts"]) == ["both", "more", "counts"]
    assert units["counts"].timing is Timing.EPOCHS


def test_a_union_with_several_readers_is_materialised_once() -> None:
    flow, a, b = two_streams()
    both = a.union("both", b)
    both.sink("out", ANY)
    both.group_by("k").agg("counts", ANY).sink("counted", ANY)
    units = plan(flow).units
    assert units["both"].materialised
    assert units["both"].reads == ("clean", "b")
    assert units["counts"].reads == ("both",)


def test_what_aggregates_a_merge_has_a_job_of_its_own() -> None:
    flow, a, b = two_streams()
    a.merge("both", b).transform("more", same).group_by("k").agg("counts", ANY).sink("out", ANY)
    units = plan(flow).units
    assert list(units) == ["clean", "more", "counts"]
    assert units["more"].timing is Timing.GATHERED
    assert units["more"].reads == ("clean", "b")
    assert units["counts"].reads == ("more",)
    assert units["counts"].timing is Timing.EPOCHS


def test_rows_are_looked_up_for_behind_a_union_but_not_in_its_job() -> None:
    flow, a, b = two_streams()
    counts = b.group_by("k").agg("counts", ANY)
    a.union("both", b).transform("more", same).lookup("asked", of=counts.by("k")).sink("out", ANY)
    units = plan(flow).units
    assert units["more"].reads == ("clean", "b")
    assert units["asked"].reads == ("more", "counts")


@pytest.mark.parametrize("behind", ["aggregate", "lookup", "merge", "gathering"])
@pytest.mark.parametrize("how", ["union", "merge", "view"])
def test_any_streams_meet_and_those_with_times_of_their_own_as_they_come(behind: str, how: str) -> None:
    flow, a, b = two_streams()
    counts = b.group_by("k").agg("counts", ANY)
    other = {
        "aggregate": lambda: counts,
        "lookup": lambda: a.lookup("asked", of=counts.by("k")),
        "merge": lambda: a.merge("merged", b),
        "gathering": lambda: a.gather("hours", policy=bl.Batch(seconds=3600)),
    }[behind]()
    query = f"SELECT * FROM clean JOIN {other.name} USING (k)"
    both = flow.sql("both", query) if how == "view" else getattr(a, how)("both", other)
    both.sink("out", ANY)
    counts.sink("counted", ANY)
    planned = plan(flow)
    unit = planned.units["both"]
    if how == "view" and behind != "aggregate":
        assert unit.reads == ("both_meeting",)
        unit = planned.units["both_meeting"]
    assert other.name in unit.reads
    same_times = how != "merge" and behind == "aggregate"
    assert (unit.timing is Timing.EPOCHS) == same_times == planned.rows["both"].source_times


@pytest.mark.parametrize("how", ["union", "merge"])
def test_tables_that_come_whole_cannot_be_united(how: str) -> None:
    flow, a, b = two_streams()
    getattr(a, how)("both", b.recompute("fit", same)).sink("out", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_UNION\] both reads fit, which gives whole tables"):
        plan(flow)


def test_a_view_of_a_view_behind_a_merge_has_its_times() -> None:
    flow, a, b = two_streams()
    a.merge("merged", b)
    flow.sql("one", "SELECT k FROM merged")
    flow.sql("two", "SELECT one.k FROM one JOIN b ON one.k = b.k").sink("out", ANY)
    assert plan(flow).units["two_meeting"].timing is Timing.GATHERED


def test_what_brings_streams_together_has_a_name_that_is_free() -> None:
    flow, a, b = two_streams()
    a.merge("merged", b).transform("both_meeting", same)
    flow.sql("both", "SELECT * FROM both_meeting JOIN b USING (k)").sink("out", ANY)
    assert set(plan(flow).units["both_meeting2"].reads) == {"both_meeting", "b"}


def test_gathered_rows_are_new_rows_for_their_reader() -> None:
    flow, a, b = two_streams()
    hours = a.merge("both", b).gather("hours", policy=bl.Batch(seconds=3600))
    hours.transform("more", same).group_by("k").agg("counts", ANY).sink("out", ANY)
    units = plan(flow).units
    assert list(units) == ["clean", "both", "hours", "counts"]
    assert units["hours"].timing is Timing.BATCH
    assert units["counts"].reads == ("hours",)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] more2 gathers until an epoch is over: say when"):
        a.gather("more2")


def test_a_union_of_nothing_or_of_one_stream_twice_or_of_another_dataflow_is_refused() -> None:
    _, a, b = two_streams()
    _, _, elsewhere = two_streams()
    for others in ((), (a,), (b, b), (elsewhere,), ("b",)):
        with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] both"):
            a.union("both", *others)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] both keeps no state"):
        a.merge("both", b, policy=bl.Lazy())  # type: ignore[arg-type]
