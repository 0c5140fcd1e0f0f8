"""What a failed job's text becomes: whose function raised what, where, over which input, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import boatlift as bl
from boatlift.conditions import Retry
from boatlift.dataflow import plan
from boatlift.errors import DataError, InternalError, UnavailableError
from boatlift.spark.jobs.diagnosis import explain, first_line, is_of_an_expression, remedy, tries_of_a_task
from boatlift.spark.plans.tracebacks import WorkerTraceback
from boatlift.tasks.sealed_errors import TaskFailedError

TEXT = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 7, in main
    process()
  File "/home/me/flights.py", line 3, in number
    return parse(v)
           ^^^^^^^^
  File "/venv/lib/python3.11/site-packages/other/parse.py", line 90, in parse
    raise ValueError(v)
ValueError: bad value
with a second line

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 7, in main
    process()
  File "/home/me/flights.py", line 5, in number
    raise TypeError("no number: " + v) from error
TypeError: no number: poison SQLSTATE: 38000
"""


def test_the_users_part_of_a_workers_traceback_is_kept() -> None:
    raised = WorkerTraceback.found_in(TEXT)
    assert raised is not None
    assert (raised.summary, raised.place) == ("TypeError: no number: poison", " (line 5 of /home/me/flights.py)")
    assert "pyspark" not in raised.text
    assert "/other/parse.py" in raised.text
    assert raised.text.count("Traceback") == 2
    assert "direct cause" in raised.text
    first = WorkerTraceback.found_in(TEXT[: TEXT.index("The above")])
    assert first is not None
    assert (first.summary, first.place) == ("ValueError: bad value", " (line 3 of /home/me/flights.py)")
    assert WorkerTraceback.found_in("no traceback at all") is None


def test_an_error_names_function_step_line_and_input_and_its_traceback_is_a_note(tmp_path: Path) -> None:
    source: Any = bl.files(str(tmp_path / "*.csv"), schema="k STRING", max_files_per_step=5)
    for name in "abcde":
        (tmp_path / f"{name}.csv").write_text("k\n1\n")
    position = source.next(source.start())
    told = explain(RuntimeError(TEXT), "sums", 3, [(source, position)], ["read"], "look at it")
    files = ", ".join(str(tmp_path / f"{name}.csv") for name in "abc")
    assert told.message == (
        "a function of read raised at step 3 of sums: TypeError: no number: poison (line 5 of /home/me/flights.py); "
        f"the step takes {files} and 2 more files"
    )
    assert str(told) == f"[USER_CODE] {told.message}; look at it"
    assert told.condition == "USER_CODE"
    assert "\n" not in told.message
    (note,) = told.__notes__
    assert note.startswith("Traceback (most recent call last):")
    assert first_line(RuntimeError(TEXT)) == "TypeError: no number: poison (line 5 of /home/me/flights.py)"


def test_an_error_of_java_that_pyspark_hands_on_has_the_words_of_spark() -> None:
    said = "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery. SQLSTATE: 21000"
    java = (
        f"An error occurred while calling o1.collect.\n: java.util.X: org.apache.spark.Y: {said}\n\tat org.Z.z(Z.java)"
    )
    assert first_line(RuntimeError(java)) == said
    told = explain(RuntimeError(java), "sums", 3)
    assert str(told) == f"[USER_CODE] an expression of sums failed at step 3: {said}"
    assert is_of_an_expression(RuntimeError(java))
    assert not is_of_an_expression(RuntimeError("[OUT_OF_DISK] SQLSTATE: 53100"))
    assert is_of_an_expression(RuntimeError("[CAST] The value 'x SQLSTATE: 58030' is no INT. SQLSTATE: 22018"))


def test_an_error_of_a_task_is_that_of_a_changed_input_if_there_is_one(tmp_path: Path) -> None:
    source: Any = bl.files(str(tmp_path / "*.csv"), schema="k INT")
    (tmp_path / "a.csv").write_text("k\n1\n")
    inputs = [(source, source.next(source.start()))]
    bad = TaskFailedError(DataError("BAD_ROW", "a.csv line 2: it is bad"))
    told = explain(bad, "sums", 3, inputs, remedy="look at it")
    assert str(told) == "[BAD_ROW] a.csv line 2: it is bad; look at it"
    broken = TaskFailedError(InternalError("INTERNAL", "a task failed"))
    assert explain(broken, "sums", 3, inputs).condition == "INTERNAL"
    missing = TaskFailedError(DataError("INPUT_MISSING", "a.csv is gone: put it back"))
    assert str(explain(missing, "sums", 3, inputs, remedy="look at it")) == str(missing)
    (tmp_path / "a.csv").write_text("k\nx\n")
    unavailable = TaskFailedError(UnavailableError("STORE_FAILED", "no disk"))
    assert explain(unavailable, "sums", 3, inputs).condition == "STORE_FAILED"
    for each in (bad, broken):
        told = explain(each, "sums", 3, inputs, remedy="look at it")
        assert told.condition == "INPUT_CHANGED"
        assert "look at it" not in str(told)

    class Unreachable:
        def verify(self, _position: Any) -> None:
            raise UnavailableError("INPUT_UNAVAILABLE", "not now")

    one = [(cast("Any", Unreachable()), {}), *inputs]
    assert explain(broken, "sums", 3, one[:1]).condition == "INTERNAL"
    assert explain(broken, "sums", 3, one).condition == "INPUT_CHANGED"


def test_the_remedy_works() -> None:
    flow = bl.Dataflow("mine")
    rows = flow.source("rows", bl.generator({"n": "id"}, rows_per_step=1))
    rows.transform("kept", lambda df: df).sink("out", bl.parquet("a"))
    rows.recompute("fit", lambda df: df, policy=bl.Batch(epochs=2)).sink("fits", bl.parquet("b"))
    planned = plan(flow)
    kept, fit = remedy(planned, "kept", 7), remedy(planned, "fit", 0)
    assert kept == (
        "boatlift look FLOW --store STORE --step kept:7 shows its rows, boatlift run FLOW --store STORE --skip kept:7 "
        "leaves it out"
    )
    assert "--skip" not in fit
    assert "look FLOW" in fit

    forgetting = bl.Dataflow("mine")
    orders = forgetting.source("orders", bl.push("id LONG", listen="127.0.0.1:8080", ack="stable"))
    orders.transform("kept", lambda df: df).sink("out", bl.parquet("a"))
    assert remedy(plan(forgetting), "kept", 7) == "let the function pass over such rows"


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
        "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery. SQLSTATE: 21000",
    ],
)
@pytest.mark.parametrize("lasting", [True, False])
def test_code_of_the_user_that_would_fail_again_is_marked(text: str, lasting: bool) -> None:
    assert explain(RuntimeError(text), "sums", 3, lasting=lasting).lasting == lasting


@pytest.mark.parametrize(
    ("master", "setting", "tries"),
    [
        ("local", None, 1),
        ("local[2]", None, 1),
        ("local[2,4]", None, 4),
        ("local[*, 3]", "9", 3),
        ("spark://host:7077", None, 4),
        ("spark://host:7077", "2", 2),
        ("local-cluster[2,1,1024]", None, 4),
    ],
)
def test_how_often_spark_tries_a_task(master: str, setting: str | None, tries: int) -> None:
    assert tries_of_a_task(master, setting) == tries


@pytest.mark.parametrize("condition", ["INTERNAL_ERROR_ATTRIBUTE_NOT_FOUND", "PLAN_VALIDATION_FAILED_RULE_IN_BATCH"])
def test_a_plan_that_spark_refuses_is_no_fault_of_the_user_and_not_tried_again(condition: str) -> None:
    said = (
        f"An error occurred while calling o5074.collectToPython.\n: org.apache.spark.SparkException: [{condition}] Oh"
    )
    told = explain(RuntimeError(said), "sums", 3)
    assert (told.condition, told.retry) == ("PLAN_REFUSED", Retry.STOP)
    assert told.message == f"Spark refuses Boatlift's plan of step 3 of sums: [{condition}] Oh"


@pytest.mark.parametrize("value", ["[INTERNAL_ERROR]", "[BAD_ROW] a row of log has no weight SQLSTATE: P0001"])
def test_a_value_that_looks_like_an_error_of_spark_or_of_ours_is_none(value: str) -> None:
    said = f"[CAST_INVALID_INPUT] The value '{value}' of the type STRING is no BIGINT. SQLSTATE: 22018"
    assert explain(RuntimeError(said), "sums", 3).condition == "USER_CODE"
