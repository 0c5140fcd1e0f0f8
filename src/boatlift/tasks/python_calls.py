"""Python UDFs in the sink task of a long-running job, evaluated by the code of PySpark's own workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from boatlift.errors import InternalError


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A call of a Python UDF.

    Attributes:
        functions: The pickled functions: each is called with the result of the one before.
        places: The place of each positional argument among the columns.
        named: The same for arguments by name.
    """

    functions: tuple[bytes, ...]
    places: tuple[int, ...]
    named: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """Calls of scalar Python UDFs of one kind over the same rows.

    Attributes:
        kind: PySpark's number of the kind (`PythonEvalType`).
        settings: The settings that Spark hands to the Python workers of its session.
        arguments: The columns of all arguments, as Spark's JSON.
        results: The column of each call's results.
    """

    kind: int
    calls: tuple[PythonCall, ...]
    settings: tuple[tuple[str, str], ...]
    arguments: str
    results: pa.Schema

    def of(self, arguments: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """Return the results of each call for a number of rows.

        Raises:
            Exception: a function raised, or returned something else than a value for each row.
        """
        columns = arguments or [pa.array(np.zeros(rows, np.int8))]  # a batch without columns has no number of rows
        given = pa.record_batch(columns, names=[f"_{place}" for place in range(len(columns))])
        made = pa.Table.from_batches(_evaluator(self)(0, iter([given])))
        if made.num_rows != rows:
            raise InternalError("INTERNAL", f"Python functions returned {made.num_rows} values for {rows} rows")
        results = zip(made.combine_chunks().columns, self.results.types, strict=True)
        return [column.cast(kind).combine_chunks() for column, kind in results]


@cache
def _evaluator(calls: PythonCalls) -> Any:
    """Return PySpark's function of a partition's number and its batches. A worker makes it once."""
    from pyspark.serializers import CPickleSerializer
    from pyspark.worker import EvalConf, RunnerConf, read_udfs
    from pyspark.worker_message import UDFInfo

    udfs = [
        UDFInfo([memoryview(function) for function in each.functions], [*each.places], dict(each.named), 0)
        for each in calls.calls
    ]
    settings = RunnerConf(dict(calls.settings)), EvalConf({"input_type": calls.arguments})
    function, *_ = read_udfs(CPickleSerializer(), udfs, calls.kind, *settings)  # type: ignore[no-untyped-call]
    return function
