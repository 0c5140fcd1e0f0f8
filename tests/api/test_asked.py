"""Queries over what a dataflow keeps: the rows of a batch query over the same steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api.asked import KeptTables
from boatlift.api.running import opened_store
from boatlift.errors import DataError, InvalidError
from boatlift.storage.identities import IDENTITY, Identities
from support.commands import exit_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 50
"""Of each step: the ids from there on."""

SUMS = "SELECT k, n, total FROM sums ORDER BY k"


def flow_of(steps: int | None = 4, *, other: Any = None, policy: Any = None) -> bl.Dataflow:
    flow = bl.Dataflow("asked")
    rows = flow.source("rows", bl.generator({"k": "id % 7", "v": "id"}, rows_per_step=ROWS, steps=steps))
    kept = {} if policy is None else {"policy": policy}
    sums = rows.group_by("k").agg("sums", F.count("*").alias("n"), F.sum("v").alias("total"), **kept)
    rows.group_by("k").agg("highest", F.max("v").alias("v"), **({} if other is None else {"policy": other}))
    large = sums.transform("large", lambda df: df.where("total > 100"))
    large.sink("nowhere", bl.stdout())
    return flow


def sums_at(step: int) -> list[dict[str, int]]:
    """Return what the query over all rows up to a step gives, without Spark."""
    ids = range(ROWS * (step + 1))
    return [
        {"k": k, "n": len(mine), "total": sum(mine)}
        for k in range(7)
        if (mine := [each for each in ids if each % 7 == k])
    ]


def test_an_answer_is_that_of_a_batch_query_over_the_steps_that_it_names(spark: SparkSession, tmp_path: Path) -> None:
    for steps in (1, 3, 4):
        flow = flow_of(steps)
        bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
        answer = bl.sql(flow, tmp_path / "store", SUMS, spark=spark)
        assert answer.steps == {"sums": steps - 1}
        assert answer.rows.to_pylist() == sums_at(steps - 1)
        both = "SELECT count(*) AS n FROM sums JOIN highest h ON sums.k = h.k AND h.v > total"
        assert bl.sql(flow, tmp_path / "store", both, spark=spark).steps == {"sums": steps - 1, "highest": steps - 1}


def test_beside_a_run_an_answer_is_whole_and_never_older_than_the_one_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = flow_of(None, policy=bl.Lazy(every=2), other=bl.Lazy(every=2))
    running = bl.start(flow, tmp_path / "store", spark=spark)
    try:
        seen = [-1]
        while len(set(seen)) < 5:
            assert running.is_active
            try:
                answer = running.sql(SUMS)
                both = running.sql("SELECT max(h.v) AS v FROM highest h LEFT JOIN sums s ON s.k = h.k")
            except InvalidError as error:
                if error.condition == "NOT_KEPT":  # no checkpoint yet, or none at one step
                    continue
                raise
            step = answer.steps["sums"]
            assert answer.rows.to_pylist() == sums_at(step)
            assert step >= seen[-1]
            assert both.rows.to_pylist() == [{"v": ROWS * (both.steps["sums"] + 1) - 1}]
            assert both.steps["sums"] == both.steps["highest"]
            seen.append(step)
    finally:
        running.stop()
    assert running.sql(SUMS).rows.to_pylist() == sums_at(running.sql(SUMS).steps["sums"])


def test_tables_without_a_checkpoint_at_one_step_are_refused_until_a_clean_stop(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, store = flow_of(6, policy=bl.Lazy(every=4), other=bl.Lazy(every=None)), tmp_path / "store"

    def die(progress: bl.Progress) -> None:
        if progress.what == "step" and progress.processor == "sums" and progress.time == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bl.run(flow, store, spark=spark, available_now=True, on_progress=die)
    both = "SELECT * FROM sums JOIN highest USING (k)"
    with pytest.raises(InvalidError, match=r"\[NOT_KEPT\].*sums: .*highest: none.*ask again later"):
        bl.sql(flow, store, both, spark=spark)
    answer = bl.sql(flow, store, SUMS, spark=spark)
    assert answer.rows.to_pylist() == sums_at(answer.steps["sums"])
    bl.run(flow, store, spark=spark, available_now=True)
    with pytest.raises(InvalidError, match=r"\[NOT_KEPT\]"):  # this policy makes no checkpoint at a clean stop either
        bl.sql(flow, store, both, spark=spark)
    with pytest.raises(InvalidError, match=r"\[NOT_KEPT\] highest has no checkpoint yet: .*Lazy\(every=20\)"):
        bl.sql(flow, store, "SELECT * FROM highest", spark=spark)
    other = tmp_path / "one policy"
    bl.run(flow_of(6), other, spark=spark, available_now=True)
    assert bl.sql(flow_of(6), other, both, spark=spark).steps == {"sums": 5, "highest": 5}


def test_tables_with_times_of_their_own_are_asked_alone_or_after_a_clean_stop(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The steps of an aggregate behind a batch have other numbers than those of one before it."""
    flow, store = bl.Dataflow("batched"), tmp_path / "store"
    rows = flow.source("rows", bl.generator({"k": "id % 7", "v": "id"}, rows_per_step=ROWS, steps=12))
    rows.group_by("k").agg("sums", F.count("*").alias("n"), policy=bl.Eager())
    gathered = rows.gather("gathered", policy=bl.Batch(epochs=2))
    gathered.group_by("k").agg("behind", F.count("*").alias("n"), policy=bl.Eager())

    def die(progress: bl.Progress) -> None:
        if progress.what == "step" and progress.processor == "behind" and progress.time >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bl.run(flow, store, spark=spark, available_now=True, on_progress=die)
    with pytest.raises(InvalidError, match=r"\[NOT_KEPT\].*behind a lookup, a merge or a batch"):
        bl.sql(flow, store, "SELECT * FROM sums JOIN behind USING (k)", spark=spark)
    assert bl.sql(flow, store, "SELECT * FROM behind", spark=spark).rows.num_rows == 7
    bl.run(flow, store, spark=spark, available_now=True)
    assert bl.sql(flow, store, "SELECT * FROM sums JOIN behind USING (k)", spark=spark).rows.num_rows == 7


def test_a_processor_without_rows_of_its_own_is_refused_with_what_to_write(spark: SparkSession, tmp_path: Path) -> None:
    flow, store = flow_of(2), tmp_path / "store"
    bl.run(flow, store, spark=spark, available_now=True)
    for name in ("large", "rows", "LARGE"):
        with pytest.raises(
            InvalidError, match=r"\[NOT_KEPT\].*those that do: highest, sums.*materialize.*ask for kept"
        ):
            bl.sql(flow, store, f"SELECT * FROM sums JOIN {name} USING (k)", spark=spark)
    again = bl.Dataflow("again")  # the advice is followed
    rows = again.source("rows", bl.generator({"k": "id % 7"}, rows_per_step=ROWS, steps=2))
    large = rows.transform("large", lambda df: df.where("k > 4"))
    large.materialize("kept")
    bl.run(again, tmp_path / "again", spark=spark, available_now=True)
    found = bl.sql(again, tmp_path / "again", "SELECT count(*) AS n FROM kept", spark=spark)
    assert found.rows.to_pylist() == [{"n": sum(each % 7 > 4 for each in range(2 * ROWS))}]


def test_runs_that_are_deleted_meanwhile_are_looked_up_in_the_log_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    bl.run(flow_of(2), store, spark=spark, available_now=True)
    read = KeptTables._computed

    def computed(*_: Any) -> Any:
        """The owner goes on, and deletes what the log has named before; a task finds a run missing."""
        monkeypatch.setattr(KeptTables, "_computed", read)
        bl.run(flow_of(4), store, spark=spark, available_now=True)
        raise DataError("MISSING_OBJECT", "a run is gone")

    monkeypatch.setattr(KeptTables, "_computed", computed)
    answer = bl.sql(flow_of(4), store, SUMS, spark=spark)
    assert answer.steps == {"sums": 3}
    assert answer.rows.to_pylist() == sums_at(3)


def test_a_run_that_is_missing_for_good_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    bl.run(flow_of(2), store, spark=spark, available_now=True)
    for run in (store / "runs").iterdir():
        run.unlink()
    with pytest.raises(DataError, match=r"\[(MISSING_OBJECT|CORRUPT)\]"):
        bl.sql(flow_of(2), store, SUMS, spark=spark)


def test_what_is_no_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    bl.run(flow_of(1), store, spark=spark, available_now=True)
    writes = "FROM sums INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT *"
    for text in (writes, "DROP TABLE sums", "INSERT INTO sums", "", "CREATE TABLE x AS SELECT 1"):
        with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*begin with SELECT"):
            bl.sql(flow_of(1), store, text, spark=spark)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        bl.sql(flow_of(1), store, "SELECT * FROM nowhere", spark=spark)
    own = "WITH rows AS (SELECT max(k) AS k FROM sums) SELECT k, 'insert' AS word FROM rows"
    assert bl.sql(flow_of(1), store, own, spark=spark).rows.to_pylist() == [{"k": 6, "word": "insert"}]
    assert bl.sql(flow_of(1), store, "(SELECT 1 AS one)", spark=spark).rows.to_pylist() == [{"one": 1}]


def test_a_store_that_no_owner_has_claimed_yet_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    Identities(opened_store(tmp_path / "store", create=True), "asked").create(IDENTITY)
    for query, tables in ((SUMS, ["sums"]), ("SELECT * FROM sums JOIN highest USING (k)", ["sums", "highest"])):
        answer = bl.sql(flow_of(1), tmp_path / "store", query, spark=spark)
        assert (answer.rows.num_rows, answer.steps) == (0, dict.fromkeys(tables, -1))


def test_a_store_of_another_program_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    bl.run(flow_of(1), store, spark=spark, available_now=True)
    other = bl.Dataflow("asked")
    rows = other.source("rows", bl.generator({"k": "id % 7", "v": "id"}, rows_per_step=ROWS, steps=1))
    rows.group_by("k").agg("sums", F.count("*").alias("n"), F.min("v").alias("total"))
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\]"):
        bl.sql(other, store, SUMS, spark=spark)


def test_the_command_prints_the_step_and_the_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bl.run(flow_of(2), tmp_path / "store", spark=spark, available_now=True)
    capsys.readouterr()
    monkeypatch.setattr("boatlift.api.named.load_flow", lambda *_: flow_of(2))
    monkeypatch.setattr("boatlift.api.named.check_flow", lambda _: None)
    assert exit_status(["sql", "asked:flow", SUMS, "--store", str(tmp_path / "store"), "--json"]) == 0
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == sums_at(1)
    assert "sums at step 1" in printed.err
    assert (
        exit_status(["sql", "asked:flow", "SELECT max(n) AS most FROM sums", "--store", str(tmp_path / "store")]) == 0
    )
    assert "most" in capsys.readouterr().out
    with pytest.raises(InvalidError, match=r"\[STORE_NOT_FOUND\]"):
        exit_status(["sql", "asked:flow", SUMS, "--store", str(tmp_path / "nowhere")])
