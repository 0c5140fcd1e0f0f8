"""How an error of Boatlift reaches the driver from a task, and is told from text that only looks like one.

Spark hands on the error of a task as text, which quotes whatever rows, functions of the user and Spark itself say. So
the driver gives each job a secret, its seal, and an error is one of Boatlift's if it stands behind the seal of its job.
No row can know the seal, not even a row that holds the text of an earlier error.
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
    """An error of Boatlift behind the seal of its job; it never leaves a task but as text."""


@contextmanager
def sealing() -> Iterator[None]:
    """Seal an error of Boatlift in a task; where no job has a seal, as in a test, it stays as it is."""
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
    """Give the jobs that this thread runs meanwhile a seal.

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
