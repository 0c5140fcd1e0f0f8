"""The cost of each failure under a program's policies before it runs, and the policies that buy nothing."""

from functools import partial
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Policy, plan
from boatlift.runtime.graph import program_of
from boatlift.runtime.inspect.failure_costs import costs_of, needless_policies
from support.any_connector import ANY


def same(df: Any) -> Any:
    return df


def flow_of(*, live: Any = None, cleaning: Any = None, asked: Any = None, stats: Any = None) -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    clean = flow.source("flights", ANY).transform("clean", same, policy=cleaning)
    totals = clean.group_by("k").agg("live", ANY, policy=live)
    totals.sink("network", ANY)
    fit = clean.recompute("fit", same, policy=bl.Batch(epochs=4))
    told = flow.source("queries", ANY).lookup("asked", live=totals.by("k"), fit=fit.by("k"), policy=asked)
    told.sink("answers", ANY)
    told.group_by("k").agg("stats", ANY, policy=stats).sink("counts", ANY)
    return flow


def costs(**policies: Policy) -> Any:
    return costs_of(program_of(plan(flow_of(**policies))))


def test_a_processor_that_fails_alone_executes_again_the_steps_since_its_checkpoint() -> None:
    found = costs(live=bl.Lazy(every=10), asked=bl.Lazy(every=6), stats=bl.Eager())
    assert found["live"] == {"live": 10}
    assert found["asked"] == {"asked": 6}
    assert found["stats"] == found["fit"] == {}
    assert found["everything"].keys() == {"live", "asked"}


def test_a_processor_without_checkpoints_executes_all_steps_again() -> None:
    found = costs(live=bl.Lazy(every=None), stats=bl.History())
    assert found["live"] == {"live": 60}, "all there is: three times what the longest interval between checkpoints is"
    assert found["stats"] == {}


def test_data_in_flight_spares_the_sender_of_a_reader_that_lags() -> None:
    slow = {"asked": bl.Lazy(every=80), "stats": bl.Eager()}  # a step of `asked` takes one of its two inputs
    pinned = costs(live=bl.Lazy(every=10, in_flight=False), **slow)
    assert pinned["everything"]["live"] == 40, "back to where its reader is"
    assert costs(live=bl.Lazy(every=10), **slow)["everything"]["live"] == 40, "a reader with such intervals keeps pace"
    assert costs(live=bl.Lazy(every=10, in_flight=True), **slow)["everything"]["live"] == 10


def test_an_eager_processor_keeps_those_before_it_from_executing_again() -> None:
    assert costs(cleaning=bl.Eager())["everything"] == {"live": 20, "asked": 20, "stats": 20}


def test_a_reader_of_messages_that_are_not_durable_takes_its_sender_back_with_it() -> None:
    """The lookup starts again, and its messages are made again from the inputs of their sender."""
    found = costs(live=bl.Lazy(every=10), asked=bl.Lazy(every=None))
    assert found["asked"].keys() == {"asked"}, "who lives sends it again from memory"
    assert found["live"] == {"live": 10}
    assert found["everything"]["live"] == 60, "all there is"


def in_a_row(cleaning: Any, sums: Any) -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", same, policy=cleaning)
    clean.group_by("k").agg("sums", ANY, policy=sums).sink("out", ANY)
    return flow


def test_a_policy_that_buys_nothing_is_found_with_a_cheaper_one() -> None:
    def needless(cleaning: Any, sums: Any) -> dict[str, Policy]:
        planned = plan(in_a_row(cleaning, sums))
        return needless_policies(partial(program_of, planned), {name: u.policy for name, u in planned.units.items()})

    assert needless(bl.Eager(), bl.Eager()) == {"clean": bl.Ephemeral()}, "nobody ever asks for its rows again"
    assert needless(bl.Eager(), bl.Lazy(every=10)) == {}, "it need not run again for those that go back"
    assert needless(None, bl.Lazy(every=10)) == {}


@pytest.mark.parametrize(
    "policy",
    [bl.Batch(epochs=50), bl.Batch(seconds=60), bl.Batch(event_time="at", every="1 day"), bl.Batch(when="any(x)")],
)
def test_long_epochs_are_of_many_steps(policy: bl.Batch) -> None:
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).gather("hours", policy=policy).sink("out", ANY)
    costs = costs_of(program_of(plan(flow)))
    assert costs["hours"].get("hours", 0) <= 1, "what it gave is durable"


@pytest.mark.parametrize("ack", ["recorded", "stable"])
def test_a_source_that_keeps_no_rows_goes_back_to_the_checkpoints_of_its_readers(ack: Any) -> None:
    flow = bl.Dataflow("pushed")
    rows = flow.source("rows", bl.push("k LONG NOT NULL", ack=ack))
    rows.sink("all", ANY)
    rows.group_by("k").agg("counts", ANY, policy=bl.Lazy(every=10)).sink("table", ANY)
    found = costs_of(program_of(plan(flow)))
    assert found["counts"] == {"counts": 10}
    assert found["everything"] == {"counts": 10, **({"rows:rows": 10} if ack == "stable" else {})}


@pytest.mark.parametrize("kind", ["transform", "gather"])
def test_a_history_keeps_those_before_it_from_executing_again_and_buys_nothing_behind_a_source(kind: str) -> None:
    def planned(*, cleaned: bool) -> Any:
        flow = bl.Dataflow("flow")
        rows = flow.source("rows", ANY)
        rows = rows.transform("clean", same) if cleaned else rows
        if kind == "transform":
            taken = rows.transform("taken", same, policy=bl.History())
        else:
            taken = rows.gather("taken", policy=bl.History(bl.Batch(epochs=2)))
        taken.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=None)).sink("out", ANY)
        return plan(flow)

    found = costs_of(program_of(planned(cleaned=True)))
    assert found["everything"] == {"taken": 24 if kind == "transform" else 12, "sums": 24}, "clean is not among them"
    direct = planned(cleaned=False)
    policies = {name: unit.policy for name, unit in direct.units.items()}
    needless = needless_policies(partial(program_of, direct), policies)
    assert needless == ({"taken": bl.Ephemeral()} if kind == "transform" else {})


def test_a_history_buys_the_rows_of_a_source_that_keeps_none() -> None:
    """They are durable nowhere else, and clients wait for that."""
    flow = bl.Dataflow("pushed")
    rows = flow.source("rows", bl.push("k LONG NOT NULL", ack="stable"))
    taken = rows.transform("taken", same, policy=bl.History())
    taken.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=None)).sink("out", ANY)
    pushed = plan(flow)
    policies = {name: unit.policy for name, unit in pushed.units.items()}
    assert "taken" not in needless_policies(partial(program_of, pushed), policies)
