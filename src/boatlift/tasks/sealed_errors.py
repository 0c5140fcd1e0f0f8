"""Sealed errors: how the driver recognises an error of Boatlift in the text of a failed task.

Spark delivers a task's error as text, which quotes rows, messages of users' functions and Spark's own words. So the
driver gives each job a secret, its seal. Text behind the seal is an error of Boatlift. No row can contain the seal, not
even a row with the text of an earlier error.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext

from boatlift.errors import BoatliftError, from_text, to_text

_PROPERTY = "boatlift.seal"


class TaskFailedError(Exception):
    """A task of a job has raised an error of Boatlift."""

    def __init__(self, error: BoatliftError) -> None:
        super().__init__(str(error))
        self.error = error


class SealedError(Exception):
    """An error of Boatlift behind the seal of its job; it leaves a task only as text."""


@contextmanager
def sealing() -> Iterator[None]:
    """Seal Boatlift's errors in a task; without a seal, as in a test, an error stays as it is."""
    try:
        yield
    except BoatliftError as error:
        context = TaskContext.get()
        seal = None if context is None else context.getLocalProperty(_PROPERTY)
        if not seal:
            raise
        raise SealedError(f"{seal} {to_text(error)}") from error


@contextmanager
def unsealing(context: SparkContext) -> Iterator[None]:
    """Give a seal to the jobs that this thread runs in the block.

    Raises:
        TaskFailedError: a task has raised an error of Boatlift.
    """
    seal = secrets.token_hex(16)
    context.setLocalProperty(_PROPERTY, seal)
    try:
        yield
    except Exception as error:
        _, found, behind = str(error).partition(f"{seal} ")
        if not found:
            raise
        raise TaskFailedError(from_text(behind)) from error
    finally:
        with suppress(Py4JError, OSError):  # Spark may be gone
            context.setLocalProperty(_PROPERTY, "")
