"""Maps an error of a failed Spark job to one of Boatlift's errors."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from pyspark.errors import AnalysisException

from boatlift.dataflow import Json, Plan, Source
from boatlift.errors import (
    FLOW_AND_STORE,
    BoatliftError,
    DataError,
    InternalError,
    UnavailableError,
    UserCodeError,
)
from boatlift.processes.jvm import death_of_jvm
from boatlift.spark.plans.tracebacks import WorkerTraceback
from boatlift.tasks.sealed_errors import TaskFailedError

RAISED_BAD_ROW = f"[BAD_ROW] {secrets.token_hex(16)} "
"""How an operator's expression begins its error about a bad row. No value that Spark quotes can contain it."""

_BAD_ROW = re.compile(rf"{re.escape(RAISED_BAD_ROW)}(.*?) SQLSTATE: P0001", re.DOTALL)
_SQLSTATE = re.compile(r"SQLSTATE: (\w{2})\w{3}")
_FAULTS_OF_EXPRESSIONS = frozenset({"21", "22", "23", "39", "42", "54", "P0"})
"""SQLSTATE classes of errors that every retry repeats: bad values, a scalar subquery with two rows, a repeated key of a
map, failures in Java functions, unresolved names, limits, `raise_error`."""

_OF_A_PLAN = re.compile(r"\[(INTERNAL_ERROR|INTERNAL_ERROR_ATTRIBUTE_NOT_FOUND|PLAN_VALIDATION_FAILED\w*)[].]")
"""The beginning of errors of Spark's own planner; errors of its network and its files begin otherwise."""

_CALL = re.compile(r"An error occurred while calling \S+\s*(?:Trace:\s*)?(?::\s*)?(?:[\w.$]+: )*")
"""The text that Py4J puts before Spark's: the name of an object, then names of Java classes."""

_OUTSIDE = frozenset({"PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"})
"""The analyser's conditions for missing paths and tables."""

_TRIES_ON_A_CLUSTER = 4
"""Spark's own default of spark.task.maxFailures."""


def explain(
    error: Exception,
    unit: str,
    time: int,
    inputs: Sequence[tuple[Source, Json]] = (),
    functions: Sequence[str] = (),
    remedy: str = "",
    *,
    lasting: bool = False,
) -> BoatliftError:
    """Return what a failed job means for the user.

    Args:
        error: The error that Spark or a task raised.
        inputs: The sources and positions that it read, if it read an external system.
        functions: The transforms whose Python functions it called.
        remedy: What the user can do about input that breaks the user's code or does not fit its schema.
        lasting: Whether the user's code would fail again.
    """
    if (dead := death_of_jvm(error)) is not None:
        return dead
    ours = error.error if isinstance(error, TaskFailedError) else None
    if isinstance(ours, UserCodeError):  # a task refused the result of a user's function
        refused = UserCodeError("USER_CODE", f"at step {time} of {unit}, {ours.message}", lasting=lasting)
        refused.remedy = remedy
        return refused
    if ours is not None:
        if ours.condition == "BAD_ROW":
            ours.remedy = remedy
        may_be_of_input = isinstance(ours, DataError | InternalError)
        return (_of_changed_input(inputs) if may_be_of_input else None) or ours
    text = str(error)
    for source, position in inputs:
        explained = source.diagnose(position, text)
        if isinstance(explained, BoatliftError):
            if explained.condition == "BAD_ROW":  # the step is recorded with the digest of the unchanged file
                explained.remedy = remedy
            return explained
    end = f"; {taken}" if (taken := _taken(inputs)) else ""
    raised = WorkerTraceback.found_in(text)
    if raised is not None:
        whose = " or ".join(dict.fromkeys(functions or [unit]))
        message = f"a function of {whose} raised at step {time} of {unit}: {raised.summary}{raised.place}{end}"
        failed = UserCodeError("USER_CODE", message, lasting=lasting)
        failed.remedy = remedy
        failed.add_note(raised.text)
        return failed
    if (bad := _BAD_ROW.search(text)) is not None:
        refused_row = DataError("BAD_ROW", f"{bad[1]}; correct it")
        refused_row.remedy = remedy
        return refused_row
    first = first_line(error)
    analysed = isinstance(error, AnalysisException) and error.getCondition() not in _OUTSIDE
    if analysed or _OF_A_PLAN.match(first):
        return InternalError("PLAN_REFUSED", f"Spark refuses Boatlift's plan of step {time} of {unit}: {first}")
    if _is_fault(text):
        message = f"an expression of {unit} failed at step {time}: {first.rstrip('. ')}{end}"
        failed = UserCodeError("USER_CODE", message, lasting=lasting)
        failed.remedy = remedy
        return failed
    return UnavailableError("STEP_FAILED", f"Spark could not run step {time} of {unit}: {first}")


def is_of_an_expression(error: Exception) -> bool:
    """Return whether a job failed because an expression or a function failed for a row."""
    text = str(error)
    if isinstance(error, BoatliftError) or death_of_jvm(error) is not None:
        return False
    if isinstance(error, TaskFailedError):
        return error.error.condition == "OVERFLOW"
    return WorkerTraceback.found_in(text) is not None or _is_fault(text)


def _is_fault(text: str) -> bool:
    """Return whether the text has the SQLSTATE of such an error; values that Spark quotes earlier may have others."""
    return not _FAULTS_OF_EXPRESSIONS.isdisjoint(_SQLSTATE.findall(text))


def _of_changed_input(inputs: Sequence[tuple[Source, Json]]) -> BoatliftError | None:
    """Return the error of the first source whose input is known to have changed; None if there is none."""
    for source, position in inputs:
        try:
            source.verify(position)
        except DataError as error:
            return error
        except UnavailableError:
            continue  # the source cannot be reached
    return None


def first_line(error: Exception) -> str:
    """Return the most telling line of an error: the exception of a user's function, or the first line."""
    raised = WorkerTraceback.found_in(str(error))
    if raised is not None:
        return raised.summary + raised.place
    said = _CALL.sub("", str(error), count=1)
    return next((line for line in said.splitlines() if line.strip()), type(error).__name__)


def remedy(plan: Plan, unit: str, time: int) -> str:
    """Return the remedy for a step at which the user's code always fails; see `FLOW_AND_STORE`."""
    if any(plan.keeps_no_rows(source) for source in plan.sources_of(unit)):
        return "let the function pass over such rows"
    look = f"boatlift look {FLOW_AND_STORE} --step {unit}:{time} shows its rows"
    if plan.units[unit].rereads_source:
        return f"{look}; let the function pass over bad ones"
    return f"{look}, boatlift run {FLOW_AND_STORE} --skip {unit}:{time} leaves it out"


def tries_of_a_task(master: str, max_failures: str | None) -> int:
    """Return how many times Spark tries a task before its job fails."""
    if master.startswith("local") and not master.startswith("local-cluster"):
        said = re.search(r",\s*(\d+)\s*\]", master)
        return int(said[1]) if said else 1
    return int(max_failures or _TRIES_ON_A_CLUSTER)


def _taken(inputs: Sequence[tuple[Source, Json]]) -> str:
    named = [to.names(position) for source, position in inputs if (to := source.capabilities.names_input) is not None]
    return f"the step takes {' and '.join(named)}" if named else ""
