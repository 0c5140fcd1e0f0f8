"""The numbers of values in an order."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from boatlift.state.arrangement.ordered import Order, order_codes

ASCENDING: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, -1, 0, 1, 127]),
    (pa.int64(), [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1]),
    (pa.bool_(), [False, True]),
    (pa.float64(), [-np.inf, -1e300, -1.5, 0.0, 5e-324, 1.5, np.inf, np.nan]),
    (pa.float32(), [-np.inf, -1.5, 0.0, 1.5, np.inf, np.nan]),
    (pa.timestamp("us", tz="UTC"), [-1, 0, 1_700_000_000_000_000]),
    (pa.decimal128(38, 2), [Decimal("-1e30"), Decimal("-1.5"), Decimal("0.01"), Decimal(2), Decimal("1e30")]),
    (pa.string(), ["", "\0", "a", "ab", "abcdefgh", "b", "z", "é", "\U0001f600"]),
    (pa.binary(), [b"", b"\0\0", b"\x01", b"\x7f", b"\x80", b"\xff"]),
]


@pytest.mark.parametrize(("kind", "values"), ASCENDING, ids=[str(kind) for kind, _ in ASCENDING])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_numbers_have_the_order_of_the_values(
    kind: pa.DataType, values: list[Any], descending: bool, nulls_first: bool
) -> None:
    in_order = [None, *values] if nulls_first != descending else [*values, None]
    in_order = in_order[::-1] if descending else in_order
    column = pa.array(in_order, kind)
    codes = order_codes(column, Order(descending, nulls_first))
    assert (np.diff(codes.astype(object)) >= 0).all()
    assert len(set(codes.tolist())) >= len(values) - 2, "most values have numbers of their own"


def test_a_column_that_begins_within_another_has_the_same_numbers() -> None:
    whole = pa.array(["x", None, "abc", "abcdefghijk", ""])
    assert order_codes(whole.slice(2), Order()).tolist() == order_codes(whole, Order()).tolist()[2:]


def test_zeros_are_one_and_every_nan_is_one() -> None:
    zeros = order_codes(pa.array([0.0, -0.0]), Order())
    assert zeros[0] == zeros[1]


def test_texts_with_equal_beginnings_have_one_number() -> None:
    codes = order_codes(pa.array(["abcdefgh1", "abcdefgh0"]), Order())
    assert codes[0] == codes[1]
