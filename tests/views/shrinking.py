"""Makes a case that fails smaller: one query, few steps, few rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from views.judge import CaseError, RaisedError, WrongError, judge
from views.random_queries import Generated

__all__ = ["shrunk"]


def shrunk(spark: SparkSession, case: Generated, found: CaseError, folder: Path) -> tuple[Generated, CaseError]:
    """Return a smaller case that fails in the same way; the case itself if no query of it fails alone."""
    for alone in _queries_alone(case, found):
        error = _failure(spark, alone, found, folder)
        if error is not None:
            return _with_fewer_rows(spark, alone, error, folder)
    return case, found


def _queries_alone(case: Generated, found: CaseError) -> Iterator[Generated]:
    """Return the case with one query, and as few steps as may be enough: the smallest first."""
    if isinstance(found, WrongError):
        yield _until(replace(case, queries=[case.queries[found.query]]), found.step)
        return
    steps = max(len(table.steps) for table in case.tables)
    for last in sorted({0, 1, steps // 4, steps - 1}):
        for query in case.queries:
            yield _until(replace(case, queries=[query]), last)


def _until(case: Generated, step: int) -> Generated:
    return replace(case, tables=[table.until(step) for table in case.tables])


def _with_fewer_rows(
    spark: SparkSession, case: Generated, found: CaseError, folder: Path
) -> tuple[Generated, CaseError]:
    for size in (4, 2, 1):
        for table in range(len(case.tables)):
            for step in range(len(case.tables[table].steps)):
                for begin in range(len(case.tables[table].steps[step]) - size, -1, -size):
                    smaller = case.without(table, step, begin, begin + size)
                    error = _failure(spark, smaller, found, folder)
                    if error is not None:
                        case, found = smaller, error
    return case, found


def _failure(spark: SparkSession, case: Generated, like: CaseError, folder: Path) -> CaseError | None:
    """Run a case; return its failure if it is of the same sort as another."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        judge(spark, case, folder)
    except CaseError as error:
        return error if _sort(error) == _sort(like) else None
    return None


def _sort(error: CaseError) -> str:
    return error.condition if isinstance(error, RaisedError) else "wrong"
