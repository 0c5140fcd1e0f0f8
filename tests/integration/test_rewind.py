"""A dataflow goes back to a restore point with its sinks, and takes the input after it again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import DataError, InvalidError
from boatlift.runtime.host.points import change_points
from boatlift.runtime.inspect.rewind import way_back_to
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import payloads_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.verify import verify
from support.changes import Case, MortalSink, changes, run, table, write
from support.crash.mortality import Fate, MortalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k INT, v LONG"


def rows_of(flow: bl.Dataflow) -> bl.Stream:
    return flow.source("rows", bl.files("in/*.csv", schema=SCHEMA, max_files_per_step=1))


def mixed(*, factor: int = 1, through: Callable[[Any], Any] = lambda sink: sink, keep: Any = None) -> bl.Dataflow:
    """A keyed table, changes, new rows, and a view on a view."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow", keep=keep)
    rows = rows_of(flow)
    scaled = rows.transform("scaled", lambda df: df.where("v % 3 > 0").withColumn("v", F.col("v") * factor))
    totals = scaled.group_by("k").agg("totals", F.sum("v").alias("total"), policy=bl.Lazy(every=4))
    totals.sink("answers", through(bl.sqlite("answers.db", table="totals", key=["k"])))
    totals.sink("history", through(bl.parquet("history")))
    rows.sink("copy", through(bl.parquet("copy")))
    flow.sql("big", "SELECT k, total FROM totals WHERE total > 40").sink("big_out", through(bl.parquet("big")))
    return flow


MIXED = ("answers.db", "history", "copy", "big")


def keep_point(name: str = "before") -> None:
    assert list(change_points(Path("store"), name)) == [f"flow: the restore point {name} is kept"]


def back(flow: bl.Dataflow, spark: SparkSession, to: str = "before", **change: str) -> None:
    plan = bl.evolution(flow, "store", to=to, change=change, spark=spark)
    assert plan.obstacles == {}
    bl.rewind(flow, "store", to=to, evolve=plan.id, change=change, spark=spark)


def shown(*sinks: str) -> list[Any]:
    return [table(name, "totals") if name.endswith(".db") else changes(name) for name in sinks]


def begun(case: Case, flow: bl.Dataflow) -> list[Any]:
    """A store with a restore point, and three files after it; return what the sinks held at the point."""
    run(flow, case.spark)
    keep_point()
    held = shown(*MIXED)
    for number in (20, 21, 22):
        write(case.here, number)
    run(flow, case.spark)
    assert shown(*MIXED) != held
    return held


def test_sinks_hold_what_they_held_at_the_point(case: Case, spark: SparkSession) -> None:
    held = begun(case, mixed())
    log_alone = way_back_to(Path("store"), "before")
    plan = bl.evolution(mixed(), "store", to="before", spark=spark)
    assert (log_alone.at, log_alone.undone) == (plan.at, plan.undone)
    assert log_alone.named == {"rows": 3}
    assert log_alone.sinks == {"answers": "compares", "history": "undoes", "copy": "empties", "big_out": "undoes"}
    assert (log_alone.dropped, way_back_to(Path("store"), "beginning").dropped) == ((), ("before",))
    back(mixed(), spark)
    assert shown(*MIXED) == held
    assert bl.evolution(mixed(), "store", to="before", spark=spark).undone == {"rows": 0}  # it took nothing yet
    case.check(mixed, *MIXED)


def test_a_point_with_steps_that_wait(case: Case, spark: SparkSession) -> None:
    """A stop leaves closed steps to the next run; a point of then has them too."""
    run(mixed(), spark)
    for number in (20, 21, 22, 23):
        write(case.here, number)
    progress: list[bl.Progress] = []

    def stop_early(report: bl.Progress) -> None:
        progress.append(report)
        if report.what == "take" and report.time == 9:
            threading.Thread(target=running[0].stop).start()

    running = [bl.start(mixed(), "store", spark=spark, on_progress=stop_early)]
    assert running[0].wait()
    waits = [each for each in progress if each.what == "left"]
    assert waits
    keep_point()
    run(mixed(), spark)
    back(mixed(), spark)
    case.check(mixed, *MIXED)


def test_it_goes_back_twice_and_to_an_earlier_point(case: Case, spark: SparkSession) -> None:
    run(mixed(), spark)
    keep_point("first")
    first = shown(*MIXED)
    write(case.here, 20)
    run(mixed(), spark)
    keep_point("second")
    second = shown(*MIXED)
    write(case.here, 21)
    for _ in range(2):
        run(mixed(), spark)
        back(mixed(), spark, "second")
        assert shown(*MIXED) == second
    back(mixed(), spark, "rows:6")  # the last point that has no later step
    assert shown(*MIXED) == second
    back(mixed(), spark, "rows:5")
    assert shown(*MIXED) == first
    with pytest.raises(InvalidError, match=r"\[NO_RESTORE_POINT\] there is no restore point second.*there are: first"):
        back(mixed(), spark, "second")  # went with the way back
    case.check(mixed, *MIXED)


def test_a_mended_program_replays_what_came_after_the_point(case: Case, spark: SparkSession) -> None:
    begun(case, mixed())
    back(mixed(factor=2), spark)
    case.check(partial(mixed, factor=2), *MIXED)


def test_a_point_is_of_the_program_that_it_was_kept_with(case: Case, spark: SparkSession) -> None:
    held = begun(case, mixed())
    change = mixed(factor=2)
    run(change, spark, evolve=bl.evolution(change, "store", spark=spark).id)
    back(mixed(), spark)
    assert shown(*MIXED) == held
    case.check(mixed, *MIXED)


def test_back_to_the_beginning_empties_sinks(case: Case, spark: SparkSession) -> None:
    begun(case, mixed())
    back(mixed(), spark, "beginning")
    assert [*map(len, shown(*MIXED))] == [0, 0, 0, 0]
    assert Log.open(LocalStore.open(Path("store"), create=False), None).history.points == {}
    case.check(mixed, *MIXED)


def test_what_was_kept_stays_in_the_store(case: Case, spark: SparkSession) -> None:
    """Many checkpoints later the state of the point is still there, and it is garbage once the point is dropped."""
    run(mixed(), spark)
    keep_point()
    held = shown(*MIXED)
    point = Log.open(LocalStore.open(Path("store"), create=False), None).history.live_runs()
    for number in range(20, 50):
        write(case.here, number)
    run(mixed(), spark)
    assert point <= set(LocalStore.open(Path("store"), create=False).list("runs/"))
    assert not point <= live()
    back(mixed(), spark)
    assert shown(*MIXED) == held
    assert point <= live()
    assert list(change_points(Path("store"), "before", drop=True)) == ["flow: the restore point before is dropped"]
    run(mixed(), spark)
    assert not point <= set(LocalStore.open(Path("store"), create=False).list("runs/"))
    case.check(mixed, *MIXED)


def live() -> set[str]:
    """The runs that the log names without its restore points."""
    history = Log.open(LocalStore.open(Path("store"), create=False), None).history
    return {run.name for fact in history.live_records.facts() for each in payloads_of(fact) for run in runs_of(each)}


def test_points_are_kept_while_it_runs(case: Case, spark: SparkSession) -> None:
    """By the policy and by name, without a step lost or doubled; those of the policy go when their time is over."""
    flow = mixed(keep=bl.Keep("3 seconds", every="1 second"))
    running = bl.start(flow, "store", spark=spark)
    try:
        for number in range(20, 26):
            write(case.here, number)
            time.sleep(0.5)
        keep_point("named")
        write(case.here, 26)
        write(case.here, 27)
        deadline = time.monotonic() + 60
        log = Log.open(LocalStore.open(Path("store"), create=False), None)
        while len(log.history.points) < 3:
            assert time.monotonic() < deadline, log.history.points.keys()
            time.sleep(0.2)
            log.catch_up()
            number += 1
            write(case.here, number)
    finally:
        running.stop()
        assert running.wait()
    points = log.history.points
    assert "named" in points
    assert all(name == "named" or point.until is not None for name, point in points.items())
    back(mixed(), spark, "named")
    case.check(mixed, *MIXED)


def test_receivers_get_rows_again_under_new_numbers(case: Case, spark: SparkSession) -> None:
    path = case.here / "numbers"

    def note(_rows: Any, step: int) -> None:
        with path.open("a") as file:
            file.write(f"{step}\n")

    def flow() -> bl.Dataflow:
        made = bl.Dataflow("flow")
        rows_of(made).sink("told", bl.foreach(note))
        return made

    def numbers() -> list[str]:
        return path.read_text().split()

    run(flow(), spark)
    keep_point()
    write(case.here, 20)
    run(flow(), spark)
    with pytest.raises(InvalidError, match=r"\[SINK_NOT_READABLE\].*--change told=now"):
        bl.rewind(flow(), "store", to="before", evolve=bl.evolution(flow(), "store", to="before").id, spark=spark)
    back(flow(), spark, told="now")
    assert [*history().points] == ["before"], "a receiver lacks no step"
    before = numbers()
    run(flow(), spark)
    assert len(numbers()) == len(before) + 1
    assert not {*before} & {*numbers()[len(before) :]}, "a receiver that knows a step by its number would drop it"


def test_input_that_is_gone_is_reported_before_anything_changes(case: Case, spark: SparkSession) -> None:
    begun(case, mixed())
    held = shown(*MIXED)
    Path("in/021.csv").unlink()
    plan = bl.evolution(mixed(), "store", to="before", spark=spark)
    assert "021.csv is gone" in plan.obstacles["rows"]
    with pytest.raises(DataError, match=r"\[REWIND_INPUT_GONE\] rows cannot take again .*021\.csv"):
        bl.rewind(mixed(), "store", to="before", evolve=plan.id, spark=spark)
    assert shown(*MIXED) == held
    run(mixed(), spark)


def test_a_damaged_point_is_refused_and_the_store_goes_on(case: Case, spark: SparkSession) -> None:
    run(mixed(), spark)
    keep_point()
    of_point = Log.open(LocalStore.open(Path("store"), create=False), None).history.live_runs()
    for number in range(20, 50):
        write(case.here, number)
    run(mixed(), spark)
    store = LocalStore.open(Path("store"), create=False)
    name = min(of_point - live())
    path = Path("store") / name
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    plan = bl.evolution(mixed(), "store", to="before", spark=spark)
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {name}.*another restore point"):
        bl.rewind(mixed(), "store", to="before", evolve=plan.id, spark=spark)
    assert name in [finding.name for finding in verify(store)]
    case.check(mixed, *MIXED)


def test_a_change_of_sources_ends_the_points_before_it(case: Case, spark: SparkSession) -> None:
    """The names in a cursor, and what can be taken again, are others then."""
    run(mixed(), spark)
    keep_point()
    flow = bl.Dataflow("flow")
    flow.source("others", bl.files("in/*.csv", schema=SCHEMA)).sink("others_out", bl.parquet("others"))
    run(flow, spark, evolve=bl.evolution(flow, "store", spark=spark).id)
    with pytest.raises(InvalidError, match=r"\[NO_RESTORE_POINT\].*there are: none"):
        back(mixed(), spark)
    keep_point("after")
    run(flow, spark)
    back(flow, spark, "after")


def test_a_further_column_stays_and_says_so_beforehand(case: Case, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def flow(*, more: bool) -> bl.Dataflow:
        made = bl.Dataflow("flow")
        further = [F.max("v").alias("most")] if more else []
        totals = rows_of(made).group_by("k").agg("totals", F.sum("v").alias("total"), *further)
        totals.sink("history", bl.parquet("history"))
        return made

    run(flow(more=False), spark)
    keep_point()
    run(flow(more=True), spark, evolve=bl.evolution(flow(more=True), "store", spark=spark).id)
    assert "most" in bl.evolution(flow(more=False), "store", to="before", spark=spark).obstacles["history"]
    back(flow(more=True), spark)  # the mended program keeps the column
    case.check(partial(flow, more=True), "history")


def test_a_table_that_began_later_is_not_given_what_was_before(case: Case, spark: SparkSession) -> None:
    def flow(*, late: bool) -> bl.Dataflow:
        from pyspark.sql import functions as F

        made = bl.Dataflow("flow")
        totals = rows_of(made).group_by("k").agg("totals", F.sum("v").alias("total"))
        totals.sink("history", bl.parquet("history"))
        if late:
            totals.sink("answers", bl.sqlite("answers.db", table="totals", key=["k"]))
        return made

    run(flow(late=False), spark)
    change = {"answers": "now"}
    consent = bl.evolution(flow(late=True), "store", change=change, spark=spark).id
    run(flow(late=True), spark, evolve=consent, change=change)
    keep_point()
    write(case.here, 20)
    run(flow(late=True), spark)
    assert "did not begin" in bl.evolution(flow(late=True), "store", to="before", spark=spark).obstacles["answers"]
    back(flow(late=True), spark, answers="now")
    run(flow(late=True), spark)


def test_parts_of_a_dataflow_go_back_each_by_its_own_steps(case: Case, spark: SparkSession) -> None:
    """Sources that meet in a merge have unequal steps: none gets empty ones on the way."""
    Path("few").mkdir()
    Path("few/a.csv").write_text("k,v\n1,1\n")

    def flow() -> bl.Dataflow:
        made = bl.Dataflow("flow")
        few = made.source("few", bl.files("few/*.csv", schema=SCHEMA))
        few.sink("few_out", bl.parquet("few_out"))
        rows_of(made).merge("both", few).sink("both_out", bl.parquet("both"))
        return made

    run(flow(), spark)
    keep_point()
    held = shown("few_out", "both")
    files = len(list(Path("few_out").glob("*.parquet")))
    write(case.here, 20)
    Path("few/b.csv").write_text("k,v\n2,2\n")
    run(flow(), spark)
    plan = bl.evolution(flow(), "store", to="before", spark=spark)
    assert plan.undone == {"few": 1, "rows": 1}
    back(flow(), spark)
    assert shown("few_out", "both") == held
    run(flow(), spark)
    assert len(list(Path("few_out").glob("*.parquet"))) == files + 3


def test_another_plan_is_refused(case: Case, spark: SparkSession) -> None:
    begun(case, mixed())
    plan = bl.evolution(mixed(), "store", to="before", spark=spark)
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] evolve is empty"):
        bl.rewind(mixed(), "store", to="before", evolve="", spark=spark)
    with pytest.raises(InvalidError, match=r"\[PLAN_CHANGED\].*boatlift rewind"):
        bl.rewind(mixed(factor=2), "store", to="before", evolve=plan.id, spark=spark)
    with pytest.raises(InvalidError, match=r"\[PLAN_CHANGED\]"):
        bl.rewind(mixed(), "store", to="beginning", evolve=plan.id, spark=spark)
    list(change_points(Path("store"), "before"))  # another moment of the same name
    with pytest.raises(InvalidError, match=r"\[PLAN_CHANGED\]"):
        bl.rewind(mixed(), "store", to="before", evolve=plan.id, spark=spark)


def test_lookups_batches_and_processors_go_back_too(case: Case, spark: SparkSession) -> None:
    """Their times are none of a source's; sinks that hold their steps apart need no computation."""
    from pyspark.sql import functions as F

    def flow() -> bl.Dataflow:
        made = bl.Dataflow("flow")
        rows = rows_of(made)
        totals = rows.group_by("k").agg("totals", F.sum("v").alias("total"))
        asked = made.source("asked", bl.files("asked/*.csv", schema="k INT, at INT", max_files_per_step=1))
        asked.lookup("found", t=totals.by("k")).sink("found_out", bl.parquet("found"))
        rows.gather("both", policy=bl.Batch(epochs=2)).group_by("k").agg("pairs", F.count("*").alias("n")).sink(
            "pairs_out", bl.parquet("pairs")
        )
        rows.drop_duplicates("once", ["k"]).sink("once_out", bl.parquet("once"))
        return made

    def ask(number: int) -> None:
        Path("asked").mkdir(exist_ok=True)
        Path(f"asked/{number:03}.csv").write_text(f"k,at\n1,{number}\n2,{number}\n")

    sinks = ("found", "pairs", "once")
    ask(0)
    run(flow(), spark)
    keep_point()
    held = shown(*sinks)
    for number in (20, 21, 22):
        write(case.here, number)
        ask(number)
    run(flow(), spark)
    after = shown(*sinks)
    back(flow(), spark)
    assert shown(*sinks) == held
    run(flow(), spark)
    found, pairs, once = shown(*sinks)
    assert [pairs, once] == after[1:]
    assert sorted((dict(row)["k"], dict(row)["at"]) for row in found.elements()) == sorted(
        (dict(row)["k"], dict(row)["at"]) for row in after[0].elements()
    )


def test_bad_rows_that_were_set_aside_come_again(case: Case, spark: SparkSession) -> None:
    run(mixed(), spark)
    keep_point()
    Path("in/020.csv").write_text("k,v\n1,1\nbad,row\n2,2\n")
    run(mixed(), spark, set_aside=["rows"])
    back(mixed(), spark)
    Path("in/019.csv").write_text("k,v\n3,bad\n4,4\n")  # comes before it now
    run(mixed(), spark, set_aside=["rows"])
    from boatlift.storage.bad_rows import kept_bad_rows

    kept = [bad.place for bad in kept_bad_rows(LocalStore.open(Path("store"), create=False))]
    assert sorted(kept) == ["019.csv:2", "020.csv:3"]


CALLS = 24
"""A way back of this program makes fewer calls on its store and its sinks."""


@pytest.mark.parametrize(("calls", "after"), [(calls, calls % 2 == 0) for calls in range(1, CALLS)])
def test_a_way_back_that_dies_at_any_act_goes_on_or_is_abandoned(
    case: Case, spark: SparkSession, *, calls: int, after: bool
) -> None:
    held = begun(case, mixed())
    plan = bl.evolution(mixed(), "store", to="before", spark=spark)
    fate = Fate(calls, after=after)
    mortal = mixed(through=partial(MortalSink, fate=fate))
    store: Any = MortalStore.of(Path("store"), fate)
    from boatlift.api.running import run_with
    from boatlift.runtime.host.context import RunOptions

    options = RunOptions(evolve=plan.id, rewind="before")
    try:
        run_with(mortal, store, options, spark)
    except BaseException:  # noqa: BLE001 - a death
        assert fate.over
    if "before" in bl_points() and bl.evolution(mixed(), "store", to="before", spark=spark).undone["rows"] > 0:
        if calls % 3 == 0:
            run(mixed(), spark)  # it is abandoned
        back(mixed(), spark)
    elif any(each.takes_back is not None for each in history().numbers.values()):
        run(mixed(), spark)  # any start goes on with it, and takes the input after the point again
        back(mixed(), spark)
    else:
        bl.rewind(mixed(), "store", to="before", evolve=plan.id, spark=spark)
    assert shown(*MIXED) == held
    case.check(mixed, *MIXED)


def history() -> LogHistory:
    return Log.open(LocalStore.open(Path("store"), create=False), None).history


def bl_points() -> set[str]:
    return set(history().points)
