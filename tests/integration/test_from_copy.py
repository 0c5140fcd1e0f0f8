"""A store that is restored from an older copy meets newer sinks: they come to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.api.running import run_with
from boatlift.errors import BoatliftError, DataError, FencedError, InvalidError
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.points import change_points
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.verify import verify
from integration.test_rewind import MIXED, back, mixed, rows_of, shown
from support.changes import Case, MortalSink, run, write
from support.crash.mortality import Fate, KilledError, MortalStore
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def gone_on(case: Case, flow: bl.Dataflow, sinks: Sequence[str] = MIXED) -> list[Any]:
    """A store, a copy of it, and sinks that have gone on for two runs since; return what they held at the copy."""
    run(flow, case.spark)
    held = shown(*sinks)
    shutil.copytree("store", "copy of store")
    for number in (20, 21):
        write(case.here, number)
        run(flow, case.spark)
    assert shown(*sinks) != held
    return held


def fresh(case: Case, *sinks: str) -> list[Any]:
    """What sinks hold of a store that begins with the same input."""
    folder = case.here / "as it would be"
    folder.mkdir()
    (folder / "in").symlink_to(case.here / "in")
    with chdir(folder):
        run(mixed(), case.spark)
        return shown(*sinks)


def restore() -> None:
    shutil.rmtree("store")
    shutil.copytree("copy of store", "store")


def come(flow: bl.Dataflow, spark: SparkSession, to: str | None = None, **change: str) -> None:
    plan = bl.evolution(flow, "store", to=to, from_copy=True, change=change, spark=spark)
    assert plan.obstacles == {}
    bl.rewind(flow, "store", to=to, from_copy=True, evolve=plan.id, change=change, spark=spark)


def test_sinks_come_to_the_copy_as_its_refusal_advises(case: Case, spark: SparkSession) -> None:
    held = gone_on(case, mixed())
    newer = shown(*MIXED)
    restore()
    with pytest.raises(FencedError, match=r"\[FENCED\] owner .*boatlift rewind FLOW --store STORE --from-copy"):
        run(mixed(), spark)
    with pytest.raises(FencedError):  # what starts it again may try more than once
        run(mixed(), spark)
    assert shown(*MIXED) == newer
    come(mixed(), spark)
    assert shown(*MIXED) == held
    assert list(verify(LocalStore.open(Path("store"), create=False))) == []
    case.check(mixed, *MIXED)


def test_a_copy_of_a_running_store_goes_back_to_a_point_in_it(case: Case, spark: SparkSession) -> None:
    run(mixed(), spark)
    held = shown(*MIXED)
    assert list(change_points(Path("store"), "before"))
    files = len(list(Path("copy").glob("*.parquet")))
    write(case.here, 20)
    running = bl.start(mixed(), "store", spark=spark)
    try:
        write(case.here, 21)
        until(lambda: len(list(Path("copy").glob("*.parquet"))) == files + 2)
        shutil.copytree("store", "copy of store")
    finally:
        running.stop()
        assert running.wait()
    write(case.here, 22)
    run(mixed(), spark)
    restore()
    plan = bl.evolution(mixed(), "store", from_copy=True, spark=spark)
    assert "--to" in plan.obstacles["flow"]
    with pytest.raises(DataError, match=r"\[NEEDS_CLEAN_STOP\] this copy .*there are: before"):
        bl.rewind(mixed(), "store", from_copy=True, evolve=plan.id, spark=spark)
    come(mixed(), spark, "before")
    assert shown(*MIXED) == held
    case.check(mixed, *MIXED)


def test_a_copy_meets_a_mended_program(case: Case, spark: SparkSession) -> None:
    gone_on(case, mixed())
    restore()
    come(mixed(factor=2), spark)
    case.check(partial(mixed, factor=2), *MIXED)


def few(through: Callable[[Any], Any] = lambda sink: sink) -> bl.Dataflow:
    """New rows, and changes: the one sink empties steps, the other one takes them back."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = rows_of(flow)
    rows.sink("copy", through(bl.parquet("copy")))
    rows.group_by("k").agg("totals", F.sum("v").alias("total")).sink("history", through(bl.parquet("history")))
    return flow


FEW = ("history", "copy")
CALLS = 12
"""Of the command on the store and on sinks, until they hold what they held; the last is one of the next steps."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_the_same_command_ends_what_died_on_the_way(case: Case, spark: SparkSession, call: int, after: bool) -> None:
    held = gone_on(case, few(), FEW)
    restore()
    fate = Fate(call, after=after)
    plan = bl.evolution(few(), "store", from_copy=True, spark=spark)
    dying = few(through=partial(MortalSink, fate=fate))
    options = RunOptions(evolve=plan.id, from_copy=True)
    with pytest.raises(KilledError):
        run_with(dying, MortalStore.of(Path("store"), fate), options, spark)
    again = bl.evolution(few(), "store", from_copy=True, spark=spark)
    if again.obstacles:
        assert "boatlift run goes on with that" in again.obstacles["flow"]
        run(few(), spark)
    else:
        bl.rewind(few(), "store", from_copy=True, evolve=again.id, spark=spark)
        assert shown(*FEW) == held
    case.check(few, *FEW)


def test_a_place_that_is_an_older_copy_too_is_refused(case: Case, spark: SparkSession) -> None:
    run(mixed(), spark)
    list(change_points(Path("store"), "before"))
    shutil.copytree("history", "older history")
    write(case.here, 20)
    gone_on(case, mixed())
    restore()
    shutil.rmtree("history")
    shutil.move("older history", "history")
    plan = bl.evolution(mixed(), "store", from_copy=True, spark=spark)
    with pytest.raises(DataError, match=r"\[SINK_GAP\] history holds .*--change history=now"):
        bl.rewind(mixed(), "store", from_copy=True, evolve=plan.id, spark=spark)
    held = shown("history")
    come(mixed(), spark, history="now")
    assert shown("history") == held
    assert Log.open(LocalStore.open(Path("store"), create=False), None).history.points == {}, "it cannot go back there"
    run(mixed(), spark)
    assert shown("answers.db", "copy") == fresh(case, "answers.db", "copy")


def test_steps_that_were_emptied_since_are_not_taken_for_there(case: Case, spark: SparkSession) -> None:
    """The lost store went back beyond the copy: the copy knows rows of new rows' sinks that nobody has any more."""
    run(few(), spark)
    list(change_points(Path("store"), "before"))
    write(case.here, 20)
    gone_on(case, few(), FEW)
    back(few(), spark)
    write(case.here, 21)
    run(few(), spark)
    restore()
    plan = bl.evolution(few(), "store", from_copy=True, spark=spark)
    with pytest.raises(InvalidError, match=r"\[CANNOT_TAKE_BACK\].*copy.*--to beginning"):
        bl.rewind(few(), "store", from_copy=True, evolve=plan.id, spark=spark)
    come(few(), spark, "beginning")
    assert [*map(len, shown(*FEW))] == [0, 0]
    case.check(few, *FEW)


def test_receivers_get_rows_again_under_numbers_that_no_step_has_had(case: Case, spark: SparkSession) -> None:
    path = case.here / "numbers"

    def note(_rows: Any, step: int) -> None:
        with path.open("a") as file:
            file.write(f"{step}\n")

    def flow() -> bl.Dataflow:
        made = bl.Dataflow("flow")
        rows_of(made).sink("told", bl.foreach(note))
        return made

    run(flow(), spark)
    shutil.copytree("store", "copy of store")
    write(case.here, 20)
    run(flow(), spark)
    for _ in range(2):
        before = set(path.read_text().split())
        restore()
        assert "told=now" in bl.evolution(flow(), "store", from_copy=True, spark=spark).obstacles["told"]
        come(flow(), spark, told="now")
        path.write_text("")
        run(flow(), spark)
        assert not before.intersection(path.read_text().split())


def test_what_is_asked_for_is_refused_if_it_is_nothing(case: Case, spark: SparkSession) -> None:
    run(mixed(), spark)
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] say where .*from_copy"):
        bl.rewind(mixed(), "store", evolve="0", spark=spark)
    with pytest.raises(InvalidError, match=r"\[PLAN_CHANGED\].*boatlift rewind"):
        bl.rewind(mixed(), "store", from_copy=True, evolve="0", spark=spark)
    with pytest.raises(BoatliftError, match=r"\[NO_RESTORE_POINT\]"):
        bl.rewind(mixed(), "store", to="before", from_copy=True, evolve="0", spark=spark)


def test_an_older_and_then_a_newer_copy(case: Case, spark: SparkSession) -> None:
    """The newer one knows an owner by the number that the older one's next claim has: sinks must tell them apart."""
    run(few(), spark)
    shutil.copytree("store", "copy of store")
    write(case.here, 20)
    run(few(), spark)
    shutil.copytree("store", "newer copy")
    held = shown(*FEW)
    restore()
    come(few(), spark)
    run(few(), spark)
    shutil.rmtree("store")
    shutil.copytree("newer copy", "store")
    plan = bl.evolution(few(), "store", from_copy=True, spark=spark)
    with pytest.raises(InvalidError, match=r"\[CANNOT_TAKE_BACK\]"):  # its steps were emptied for the older copy
        bl.rewind(few(), "store", from_copy=True, evolve=plan.id, spark=spark)
    come(few(), spark, "beginning")
    run(few(), spark)
    assert shown(*FEW) == held
    case.check(few, *FEW)


def test_the_owner_of_the_lost_store_is_fenced_at_its_sinks(case: Case, spark: SparkSession) -> None:
    run(few(), spark)
    shutil.copytree("store", "copy of store")
    lost = bl.start(few(), "store", spark=spark)
    write(case.here, 20)
    files = len(list(Path("copy").glob("*.parquet")))
    until(lambda: len(list(Path("copy").glob("*.parquet"))) > files)
    shutil.move("copy of store", "restored")
    plan = bl.evolution(few(), "restored", from_copy=True, spark=spark)
    bl.rewind(few(), "restored", from_copy=True, evolve=plan.id, spark=spark)
    write(case.here, 21)
    with pytest.raises(FencedError):
        lost.wait()
    run(few(), spark, "restored")
    shutil.rmtree("store")
    shutil.move("restored", "store")
    case.check(few, *FEW)


def test_the_consent_is_to_one_copy(case: Case, spark: SparkSession) -> None:
    run(few(), spark)
    plan = bl.evolution(few(), "store", from_copy=True, spark=spark)
    write(case.here, 20)
    run(few(), spark)
    with pytest.raises(InvalidError, match=r"\[PLAN_CHANGED\]"):
        bl.rewind(few(), "store", from_copy=True, evolve=plan.id, spark=spark)


def test_a_copy_that_no_sink_has_gone_beyond(case: Case, spark: SparkSession) -> None:
    """Its numbers go on, and its sinks get an empty step."""
    run(mixed(), spark)
    held, last = shown(*MIXED), Log.open(LocalStore.open(Path("store"), create=False), None).last
    come(mixed(), spark)
    assert shown(*MIXED) == held
    assert Log.open(LocalStore.open(Path("store"), create=False), None).last > last
    case.check(mixed, *MIXED)
