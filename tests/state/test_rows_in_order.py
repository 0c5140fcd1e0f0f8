"""Rows by the hash of their key, then by columns, then by content."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from boatlift.kernels.kernel import rows_in_order

VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), [None, "", "a", "ab", "b"]),
    (pa.binary(), [None, b"", b"\x00", b"\xff"]),
    (pa.decimal128(38, 0), [None, Decimal(-5), Decimal(10) ** 30]),
    (pa.float64(), [None, -1.5, 2.0, np.nan]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_null_comes_first_and_nothing_of_arrow_is_deprecated(kind: pa.DataType, values: list[Any]) -> None:
    order = [2, 0, 1, *range(3, len(values))]
    shuffled = pa.chunked_array(
        [pa.array([values[at] for at in order[:2]], kind), pa.array([values[at] for at in order[2:]], kind)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rows_in_order(np.zeros(len(values), np.uint64), pa.table({"v": shuffled}), ["v"])
    assert [order[at] for at in found] == list(range(len(values)))
