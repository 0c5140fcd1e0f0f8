"""Expressions that tasks compute within a loop have the meaning that Spark gives them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from boatlift.errors import DataError
from boatlift.kernels.loop.expressions import Both, Constant, FirstTrue, FunctionCall, InTask, Place, true_of

MOST = 2**63 - 1
BOOL, LONG, DOUBLE = pa.bool_(), pa.int64(), pa.float64()


def values(expression: InTask, *columns: list[Any]) -> list[Any]:
    arrays = [pa.array(column) for column in columns]
    found: list[Any] = expression.of(arrays, len(arrays[0])).to_pylist()
    return found


def call(function: str, *arguments: InTask, kind: pa.DataType = BOOL) -> FunctionCall:
    return FunctionCall(function, arguments, kind)


A, B = Place(0), Place(1)


def test_sums_that_do_not_fit_are_refused_or_wrap_as_spark_does() -> None:
    with pytest.raises(DataError, match=r"\[OVERFLOW\]"):
        values(call("+", A, Constant(1, LONG), kind=LONG), [1, MOST])
    assert values(call("wrapping +", A, Constant(1, LONG), kind=LONG), [1, MOST]) == [2, -MOST - 1]


def test_a_branch_is_computed_for_its_rows_alone() -> None:
    doubled = call("*", A, Constant(2, LONG), kind=LONG)
    small = call("<", A, Constant(100, LONG))
    assert values(FirstTrue(((small, doubled),), Constant(-1, LONG), LONG), [3, MOST, None]) == [6, -1, -1]
    fits = Both(small, call("<", doubled, Constant(10, LONG)))
    assert values(fits, [3, MOST, 50, None]) == [True, False, False, None]


def test_conditions_have_the_logic_of_null() -> None:
    cases = [True, False, None]
    pairs = [(a, b) for a in cases for b in cases]
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    assert values(Both(A, B), left, right) == [True, False, None, False, False, False, None, False, None]
    assert values(call("or", A, B), left, right) == [True, True, True, True, False, None, True, None, None]
    assert true_of(A, [pa.array(cases)], 3).tolist() == [0]
    assert values(call("<=>", A, B), [1, None, None], [1, 1, None]) == [True, False, True]


def test_nan_equals_nan_and_is_the_greatest_number_and_zeros_are_one() -> None:
    one, other = [float("nan"), 1.0, -0.0, None], [float("nan"), float("nan"), 0.0, 1.0]
    assert values(call("=", A, B), one, other) == [True, False, True, None]
    assert values(call("<", A, B), one, other) == [False, True, False, None]
    assert str(values(call("wrapping *", A, Constant(-1.0, DOUBLE), kind=DOUBLE), [0.0])) == "[0.0]"


def test_texts_are_compared_by_their_bytes_and_joined_unless_one_is_null() -> None:
    assert values(call("<", A, B), ["a", "Z", "é"], ["b", "a", "z"]) == [True, True, False]
    assert values(call("concat", A, B, kind=pa.string()), ["a", None], ["b", "c"]) == ["ab", None]


def test_the_least_value_passes_nulls_over() -> None:
    assert values(call("least", A, B, kind=LONG), [1, None, None], [2, 3, None]) == [1, 3, None]
    assert values(call("cast", A, kind=pa.string()), [1, None]) == ["1", None]


def test_lists_are_made_joined_and_searched_as_spark_does() -> None:
    lists, numbers = pa.list_(pa.int64()), Place(1)
    paths = [[1, 2], None, [], [3, None], [4]]
    wanted = [2, 1, 1, 4, None]
    assert values(call("contains", Place(0), numbers), paths, wanted) == [True, None, False, None, None]
    one = call("list", numbers, kind=lists)
    assert values(one, paths, wanted) == [[2], [1], [1], [4], [None]]
    joined = [[1, 2, 2], None, [1], [3, None, 4], [4, None]]
    assert values(call("concat lists", Place(0), one, kind=lists), paths, wanted) == joined
    assert values(call("list", numbers, numbers, kind=lists), paths[:2], wanted[:2]) == [[2, 2], [1, 1]]
